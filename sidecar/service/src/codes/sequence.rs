//! Codes built around an increasing number, which can be decoded from the code.
//!
//! ```text
//! filler | length | number in base n | filler | check character
//!   1        1       1 to length-3      rest
//! ```
//!
//! The number grows by random steps. Counters exist in Redis and in SQL, and each continues above
//! the other: after Redis lost its counter, SQL's is higher; while Redis is unreachable, only SQL
//! counts. SQL decides which process gets which numbers ([`leases`](super::leases)).
//!
//! A code reveals its number, and so about which numbers others have. Only the fillers protect those, so
//! a number gets no more characters of a code than leave enough of them; larger ones need longer codes.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use rand::{CryptoRng, RngExt};
use shortlink_core::codes::random::random_characters;
use shortlink_core::ports::Publisher;
use shortlink_store::NumbersWanted;
use vocabulary::{Alphabet, Code, CodeRules};

use super::leases::{Holding, Leases};
use super::strategy::{CodeStrategy, DrawError, DrawRequest, complete};

/// The longest step from one number to the next.
const LONGEST_STEP: u64 = 16;

/// The number of codes whose numbers are leased at once, unless a request needs more or the length has few numbers.
const USUAL_LEASE: u64 = 512;

/// The largest lease, as a part of all numbers of a length: 1 / this.
const LEASES: u64 = 16;

/// The beginning of the names of counters.
const COUNTER: &str = "sequence:";

/// Number of filler characters before the length.
const LEFT_FILLER: usize = 1;

/// The least mean number of numbers of which one has a code.
const MEAN_STEP: u64 = LONGEST_STEP.div_ceil(2);

/// Percentage of a length's numbers from which they are nearly used up.
const NEARLY_USED_UP: u64 = 80;

/// The length is written as itself plus a random multiple of this, so that its character varies.
const LENGTHS: u8 = 12;

/// Issues codes built around increasing numbers.
pub struct SequenceCodes<R> {
    leases: Arc<Leases>,
    publisher: Arc<dyn Publisher>,
    rules: CodeRules,
    /// The least mean number of guesses for a link, by a guesser who knows another code.
    one_in: u64,
    rng: Mutex<R>,
    /// Lengths that the log has as nearly used up.
    said: Mutex<HashSet<usize>>,
}

impl<R: CryptoRng> SequenceCodes<R> {
    /// Counts in Redis and in the store of leases. A guesser who knows a code needs `one_in` guesses on average for
    /// another link.
    pub fn new(
        leases: Arc<Leases>,
        publisher: Arc<dyn Publisher>,
        rules: CodeRules,
        one_in: u64,
        rng: R,
    ) -> Self {
        Self {
            leases,
            publisher,
            rules,
            one_in,
            rng: Mutex::new(rng),
            said: Mutex::default(),
        }
    }

    /// Leases numbers for this process only, up to `most`; returns whether there are any.
    async fn lease(
        &self,
        holding: &mut Holding,
        length: usize,
        codes: u64,
        most: u64,
    ) -> Result<bool, DrawError> {
        let name = counter(length);
        // Only reads, so that an attempt that fails skips no numbers.
        let floor = self.raise(&name, 0).await.unwrap_or_default();
        let usual = (most / LEASES).clamp(LONGEST_STEP, USUAL_LEASE * LONGEST_STEP);
        let numbers = NumbersWanted {
            counter: &name,
            floor,
            size: usual.max(codes.saturating_mul(LONGEST_STEP)),
            limit: most.saturating_add(1),
            used_up: holding.until,
        };
        // SQL decides, and its lease is durable before a link uses one of the numbers: another
        // process that cannot reach Redis may meanwhile have leased numbers.
        let is_leased = self.leases.extend(holding, numbers).await?;
        if is_leased && holding.until > floor {
            self.raise(&name, holding.until).await;
        }
        Ok(is_leased)
    }

    /// Raises the counter in Redis; returns where it is, `None` if Redis does not answer.
    async fn raise(&self, name: &str, floor: u64) -> Option<u64> {
        let raised = self.publisher.advance(name, floor, 0).await;
        if let Err(error) = &raised {
            tracing::debug!(
                error = error as &dyn std::error::Error,
                "Redis does not count codes; only SQL does"
            );
        }
        raised.ok()
    }
}

#[async_trait]
impl<R: CryptoRng + Send> CodeStrategy for SequenceCodes<R> {
    async fn draw(&self, request: &DrawRequest<'_>) -> Result<Vec<Code>, DrawError> {
        let (length, alphabet) = (request.length, self.rules.alphabet);
        let wanted = request.targets.len();
        let mut codes = Vec::with_capacity(wanted);
        let Some(most) = largest(length, alphabet, self.one_in) else {
            return Ok(codes);
        };
        let mut held = self.leases.hold(&counter(length)).await?;
        while codes.len() < wanted {
            let missing = (wanted - codes.len()) as u64;
            if held.next >= held.until && !self.lease(&mut held, length, missing, most).await? {
                break;
            }
            let body = {
                let mut rng = self.rng.lock();
                let number = held.next + rng.random_range(0..LONGEST_STEP);
                held.next = held.until.min(number + 1);
                if number >= held.until || number > most {
                    continue;
                }
                body_of(number, length, alphabet, &mut *rng)
            };
            let Some(body) = body else {
                break;
            };
            codes.push(complete(&self.rules, &body)?);
        }
        let is_nearly_used_up = held.next >= most / 100 * NEARLY_USED_UP;
        if is_nearly_used_up && self.said.lock().insert(length) {
            tracing::warn!(
                length,
                "numbers for codes of sequence of this length are nearly used up; the next length follows"
            );
        }
        Ok(codes)
    }
}

/// Returns the name of the counter for codes of a length, without the check character.
pub fn counter(length: usize) -> String {
    format!("{COUNTER}{length}")
}

/// The length that a counter is for, without the check character; `None` for that of another strategy.
pub(super) fn length_of(counter: &str) -> Option<usize> {
    counter.strip_prefix(COUNTER)?.parse().ok()
}

/// Returns the most by which a counter can have advanced for so many links, created by processes
/// that restarted so often.
pub fn most_used(links: u64, starts: u64) -> u64 {
    let numbers = links.saturating_add(starts.saturating_mul(USUAL_LEASE));
    numbers.saturating_mul(LONGEST_STEP)
}

/// The mean number of guesses for a link whose number is about `number`, by a guesser who knows a code with one like it.
pub fn guesses(number: u64, length: usize, alphabet: Alphabet) -> Option<u128> {
    let size = u128::from(alphabet.size());
    let digits = number
        .checked_ilog(alphabet.size().into())
        .unwrap_or_default() as usize
        + 1;
    let right_filler = length.checked_sub(LEFT_FILLER + 1 + digits)?;
    let fillers = LEFT_FILLER + right_filler;
    Some(size.pow(fillers as u32) * u128::from(alphabet.size() / LENGTHS) * u128::from(MEAN_STEP))
}

/// The largest number of a length that takes `one_in` guesses.
pub fn largest(length: usize, alphabet: Alphabet, one_in: u64) -> Option<u64> {
    let of_digits = |digits: u32| {
        u64::from(alphabet.size())
            .checked_pow(digits)
            .map_or(u64::MAX, |it| it - 1)
    };
    let mut numbers = (1..length as u32).map(of_digits).rev();
    let is_enough = |number: &u64| {
        guesses(*number, length, alphabet).is_some_and(|guesses| guesses >= one_in.into())
    };
    numbers.find(is_enough)
}

/// The number of codes with numbers up to one.
pub fn codes_up_to(number: u64) -> u64 {
    let codes = u128::from(number) * 2 / u128::from(LONGEST_STEP + 1);
    u64::try_from(codes).unwrap_or(u64::MAX)
}

/// Returns the characters before the check character for a number; `None` when the number is too
/// large for the length.
fn body_of(
    number: u64,
    length: usize,
    alphabet: Alphabet,
    rng: &mut impl CryptoRng,
) -> Option<Vec<u8>> {
    let size = u64::from(alphabet.size());
    let mut digits = Vec::new();
    let mut rest = number;
    loop {
        digits.push(alphabet.character((rest % size) as u8));
        rest /= size;
        if rest == 0 {
            break;
        }
    }
    digits.reverse();
    let right_filler = length.checked_sub(LEFT_FILLER + 1 + digits.len())?;
    let multiples = alphabet.size() / LENGTHS;
    let said = digits.len() as u8 % LENGTHS + LENGTHS * rng.random_range(0..multiples);
    let mut body = random_characters(alphabet.characters(), LEFT_FILLER, rng);
    body.push(alphabet.character(said));
    body.extend(digits);
    body.extend(random_characters(alphabet.characters(), right_filler, rng));
    Some(body)
}

/// Returns the number in a code; `None` when the code has none.
pub fn number_of(code: &Code, rules: &CodeRules) -> Option<u64> {
    let alphabet = rules.alphabet;
    let bytes = code.as_bytes();
    let body = bytes.get(..bytes.len().checked_sub(rules.check.length())?)?;
    let said = alphabet.digit(*body.get(LEFT_FILLER)?)?;
    let length = usize::from(said % LENGTHS);
    let digits = body.get(LEFT_FILLER + 1..LEFT_FILLER + 1 + length)?;
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &character| {
        let digit = alphabet.digit(character)?;
        number
            .checked_mul(alphabet.size().into())?
            .checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn numbers_leave_enough_fillers() {
        let base62 = |length, one_in| largest(length, Alphabet::Base62, one_in);
        assert_eq!(base62(4, 100_000), Some(61));
        assert_eq!(base62(4, 1_000_000), None);
        assert_eq!(base62(7, 100_000), Some(62_u64.pow(4) - 1));
        assert_eq!(base62(8, 100_000), Some(62_u64.pow(5) - 1));
        // All but the filler and the length.
        assert_eq!(base62(7, 1), Some(62_u64.pow(5) - 1));
        assert_eq!(
            guesses(62_u64.pow(4) - 1, 7, Alphabet::Base62),
            Some(153_760)
        );
        assert_eq!(guesses(62_u64.pow(4), 7, Alphabet::Base62), Some(2480));
        assert_eq!(guesses(0, 7, Alphabet::Base62), Some(62_u128.pow(5) * 40));
        assert_eq!(guesses(62_u64.pow(6), 7, Alphabet::Base62), None);
    }

    #[test]
    fn a_code_tells_its_number() {
        let mut rng = StdRng::seed_from_u64(3);
        for alphabet in [Alphabet::Base62, Alphabet::Unambiguous] {
            let rules = CodeRules {
                alphabet,
                ..CodeRules::default()
            };
            for length in 4..=12_usize {
                let most = u64::from(alphabet.size()).pow(length as u32 - 2);
                for number in [0, 1, 56, 57, 61, 62, most / 2, most - 1] {
                    let body = body_of(number, length, alphabet, &mut rng).expect("room");
                    assert_eq!(body.len(), length);
                    let code = rules.complete(&body).expect("a code");
                    assert_eq!(number_of(&code, &rules), Some(number), "{code}");
                }
                assert_eq!(body_of(most, length, alphabet, &mut rng), None);
            }
        }
    }
}
