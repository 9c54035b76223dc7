//! The cache against a simple model, and its bounds.

use std::collections::HashMap;

use proptest::prelude::*;
use shortlink_resolver::cache::{Cache, Freshness, ReadFrom};
use shortlink_resolver::hash::CodeHashing;
use shortlink_resolver::vocabulary::judge::redirect_instead;
use shortlink_resolver::vocabulary::{
    BadNews, CampaignId, Code, Parameters, Phase, RedirectStatus,
};
use shortlink_resolver::{Answer, CacheSettings, Judgement, Key, MissReason, Now, Ruling};

const STALE_FOR: u64 = 5_000;
const LONGEST_AGE: u64 = 20_000;

/// Some codes are longer than most, and begin alike.
fn code(number: usize) -> Code {
    let text = match number % 8 {
        2 => format!("a-code-of-some-length-{number}"),
        6 => format!("{number:>064}"),
        _ => format!("c{number}"),
    };
    text.parse().expect("a code")
}

fn at(ms: u64) -> Now {
    Now {
        ms,
        unix: 1_000 + ms / 1000,
    }
}

fn cache(bytes: usize) -> Cache {
    let settings = CacheSettings {
        bytes,
        stale_for: STALE_FOR,
        longest_age: LONGEST_AGE,
    };
    Cache::new(&settings, CodeHashing::new(7))
}

fn redirect(target: &str) -> Answer<'_> {
    Answer::Redirect {
        status: RedirectStatus::Found,
        forwards_query: false,
        has_click_id: false,
        is_plan: false,
        instead_of: None,
        target: target.as_bytes(),
    }
}

/// Links, and every fourth a campaign.
fn key(number: usize) -> Key {
    match number % 4 {
        3 => Key::Campaign(CampaignId::new(number as u64).expect("an id")),
        _ => Key::Link(code(number)),
    }
}

fn insert(cache: &mut Cache, number: usize, answer: Answer<'_>) {
    cache.insert(
        &Key::Link(code(number)),
        &Judgement::for_ever(answer),
        ReadFrom::Master,
        at(0),
    );
}

/// Returns the cache's entry of a key.
fn find(cache: &mut Cache, key: &Key, ms: u64) -> Option<(String, Freshness)> {
    let entry = match key {
        Key::Link(code) => cache.find(code, cache.hash(code), at(ms))?,
        Key::Campaign(id) => cache.find_campaign(*id, at(ms))?,
    };
    let shown = match cache.campaign_link(entry) {
        Some(link) => format!("{} {:?} {:?}", link.campaign, link.parameters, link.phase),
        None => format!("{:?}", cache.answer(entry, at(ms))),
    };
    Some((
        format!("{shown} of {:?}", entry.read_from()),
        entry.freshness(),
    ))
}

/// The model's record of an entry.
struct Kept {
    /// The answer, and what it is once it does not hold any more; `None` when nothing is known
    /// then.
    answer: String,
    afterwards: Option<String>,
    /// Until when it holds, in seconds since 1970; 0 for ever.
    until: u64,
    /// Time at which it was read, its epoch, and the end of that epoch, in milliseconds.
    read: u64,
    epoch: u32,
    ended: Option<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        number: usize,
        kind: u8,
        length: usize,
        lives: u64,
    },
    Find(usize),
    Remove(usize),
    Clear,
    EndEpoch,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..400usize, 0..9u8, 10..1000usize, 0..30u64).prop_map(
            |(number, kind, length, lives)| Step::Insert { number, kind, length, lives }
        ),
        12 => (0..400usize).prop_map(Step::Find),
        3 => (0..400usize).prop_map(Step::Remove),
        1 => prop_oneof![9 => Just(Step::EndEpoch), 1 => Just(Step::Clear)],
        2 => (1..4000u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..600)
}

proptest! {
    /// Whatever the cache finds is what was put there last, and as fresh as it says; what it does
    /// not find is gone for a reason.
    #[test]
    fn behaves_as_a_map_that_forgets(steps in steps()) {
        let mut cache = cache(Cache::LEAST_BYTES);
        let mut model: HashMap<usize, Kept> = HashMap::new();
        let (mut ms, mut epochs, mut forgotten) = (0u64, 0u32, 0u64);
        for step in steps {
            match step {
                Step::Insert { number, kind, length, lives } => {
                    let target = format!("https://e/{}", "x".repeat(length));
                    let ruling = match kind {
                        0 if length % 2 == 0 => {
                            Ruling::Answer(redirect_instead(BadNews::Gone, target.as_bytes()))
                        }
                        0 => Ruling::Answer(Answer::Gone),
                        1 if lives == 0 => Ruling::Answer(Answer::Unknown),
                        1 if length % 2 == 0 => {
                            Ruling::Answer(redirect_instead(BadNews::NotYet, target.as_bytes()))
                        }
                        1 => Ruling::Answer(Answer::NotYet),
                        2 => Ruling::Answer(Answer::Miss(MissReason::Absent)),
                        3 => Ruling::Answer(Answer::Miss(MissReason::Unreadable)),
                        4 if number % 4 != 3 => Ruling::Campaign {
                            campaign: CampaignId::new(length as u64).expect("an id"),
                            parameters: Parameters::from_checked(&target.as_bytes()[10..]),
                            phase: match length % 3 {
                                0 if lives != 0 => Phase::Early,
                                1 => Phase::Over,
                                _ => Phase::Live,
                            },
                        },
                        _ => Ruling::Answer(Answer::Redirect {
                            status: [
                                RedirectStatus::MovedPermanently,
                                RedirectStatus::Found,
                                RedirectStatus::TemporaryRedirect,
                                RedirectStatus::PermanentRedirect,
                            ][usize::from(kind % 4)],
                            forwards_query: length % 2 == 0,
                            has_click_id: length % 5 == 0,
                            is_plan: length % 7 == 0,
                            instead_of: None,
                            target: target.as_bytes(),
                        }),
                    };
                    let read_from = if length % 3 == 0 { ReadFrom::Replica } else { ReadFrom::Master };
                    let holds_for_a_time = kind == 1 || kind >= 4;
                    let until = if lives == 0 || !holds_for_a_time {
                        0
                    } else {
                        at(ms).unix + lives
                    };
                    cache.insert(&key(number), &Judgement { ruling, until }, read_from, at(ms));
                    let shown = |answer| format!("{answer} of {read_from:?}");
                    let (answer, afterwards) = match ruling {
                        // The link's time is for the edge to look at.
                        Ruling::Campaign { campaign, parameters, phase } => {
                            let shown = shown(format!("{campaign} {parameters:?} {phase:?}"));
                            (shown.clone(), Some(shown).filter(|_| phase != Phase::Early))
                        }
                        Ruling::Answer(answer) if answer.bad_news() == Some(BadNews::NotYet) => {
                            (shown(format!("{answer:?}")), None)
                        }
                        Ruling::Answer(answer) => (
                            shown(format!("{answer:?}")),
                            Some(shown("Gone".to_owned())),
                        ),
                    };
                    let entry = Kept {
                        answer,
                        afterwards,
                        until,
                        read: ms,
                        ended: None,
                        epoch: epochs,
                    };
                    model.insert(number, entry);
                }
                Step::Find(number) => {
                    let found = find(&mut cache, &key(number), ms);
                    match (found, model.get(&number)) {
                        (None, None) => {}
                        (Some(_), None) => prop_assert!(false, "{number} was dropped"),
                        (found, Some(Kept { answer, afterwards, until, read, ended, epoch })) => {
                            let is_over = *until != 0 && at(ms).unix >= *until;
                            let expected = if is_over { afterwards.as_ref() } else { Some(answer) };
                            let is_usable = expected.is_some() && match ended {
                                None => true,
                                Some(ended) => ms < ended + STALE_FOR && epochs - epoch <= 8,
                            };
                            let Some((shown, freshness)) = found else {
                                forgotten += u64::from(is_usable);
                                continue;
                            };
                            prop_assert!(is_usable);
                            prop_assert_eq!(Some(&shown), expected);
                            let is_young = ms / 1000 - read / 1000 < LONGEST_AGE / 1000;
                            let is_fresh = ended.is_none() && is_young;
                            prop_assert_eq!(freshness == Freshness::Fresh, is_fresh);
                        }
                    }
                }
                Step::Remove(number) => {
                    cache.remove(&key(number));
                    model.remove(&number);
                }
                Step::Clear => {
                    cache.clear();
                    model.clear();
                    prop_assert!(cache.is_empty());
                }
                Step::EndEpoch => {
                    cache.end_epoch(at(ms));
                    epochs = cache.epoch();
                    for kept in model.values_mut() {
                        kept.ended.get_or_insert(ms);
                    }
                }
                Step::Pass(time) => ms += time,
            }
            prop_assert!(cache.bytes() <= cache.capacity());
            prop_assert!(cache.len() <= model.len());
        }
        // A usable entry is evicted only to free memory.
        prop_assert!(forgotten == 0 || cache.counts().evictions > 0);
    }
}

#[test]
fn memory_for_a_link_is_bounded() {
    let bytes = 16 << 20;
    let mut cache = cache(bytes);
    let target = format!("https://www.example.com/{}", "x".repeat(46));
    assert_eq!(target.len(), 70);
    for number in 0..300_000 {
        insert(&mut cache, number, redirect(&target));
    }
    assert!(cache.counts().evictions > 0, "it is full");
    let overhead = (bytes - cache.len() * target.len()) / cache.len();
    assert!(overhead <= 80, "{overhead} bytes a link besides its target");
}

#[test]
fn a_campaign_s_link_takes_little_memory() {
    let bytes = 16 << 20;
    let mut cache = cache(bytes);
    let judgement = Judgement {
        ruling: Ruling::Campaign {
            campaign: "4f".parse().expect("an id"),
            parameters: Parameters::parse(b"abc12345").expect("parameters"),
            phase: Phase::Live,
        },
        until: 0,
    };
    for number in 0..300_000 {
        cache.insert(
            &Key::Link(code(number)),
            &judgement,
            ReadFrom::Master,
            at(0),
        );
    }
    assert!(cache.counts().evictions > 0, "it is full");
    let each = bytes / cache.len();
    assert!(each <= 80, "{each} bytes a link");
}

#[test]
fn a_campaign_stays_while_its_links_pass() {
    let mut cache = cache(Cache::LEAST_BYTES);
    let campaign: CampaignId = "4f".parse().expect("an id");
    let judgement = Judgement::for_ever(redirect("https://www.example.com/{0}"));
    cache.insert(
        &Key::Campaign(campaign),
        &judgement,
        ReadFrom::Master,
        at(0),
    );
    let link = Judgement {
        ruling: Ruling::Campaign {
            campaign,
            parameters: Parameters::parse(b"abc").expect("parameters"),
            phase: Phase::Live,
        },
        until: 0,
    };
    for number in 0..50_000 {
        cache.insert(&Key::Link(code(number)), &link, ReadFrom::Master, at(0));
        assert!(cache.find_campaign(campaign, at(0)).is_some(), "{number}");
    }
    assert!(cache.counts().evictions > 40_000);
}

#[test]
fn what_is_read_stays_while_others_pass() {
    let mut cache = cache(1 << 18);
    let target = "https://www.example.com/a-target-of-some-length";
    for number in 0..100 {
        insert(&mut cache, number, redirect(target));
    }
    let mut missed = 0;
    for number in 100..50_000 {
        insert(&mut cache, number, redirect(target));
        // One at the end of the memory may find no free piece that is large enough.
        if find(&mut cache, &Key::Link(code(number % 100)), 0).is_none() {
            insert(&mut cache, number % 100, redirect(target));
            missed += 1;
        }
    }
    assert!(missed < 100, "{missed} of 49,900");
    assert!(cache.counts().evictions > 40_000);
}

#[test]
fn what_is_too_large_is_not_kept_and_replaces_what_was() {
    let mut cache = cache(Cache::LEAST_BYTES);
    insert(&mut cache, 1, redirect("https://e/"));
    let long = format!("https://e/{}", "x".repeat(8192 - 10));
    insert(&mut cache, 1, redirect(&long));
    // The least cache just takes the longest target.
    let expected = format!("{:?} of Master", redirect(&long));
    assert_eq!(
        find(&mut cache, &Key::Link(code(1)), 0),
        Some((expected, Freshness::Fresh))
    );
    insert(&mut cache, 1, Answer::Miss(MissReason::TimedOut));
    assert_eq!(find(&mut cache, &Key::Link(code(1)), 0), None);
}

#[test]
fn what_is_fetched_before_it_is_needed_lies_where_it_will_be_looked_for() {
    let mut cache = cache(1 << 20);
    let [index, ring] = cache.extents();
    let lies_in = |address: usize, (begin, length): (usize, usize)| {
        (begin..begin + length).contains(&address)
    };
    let mut entries = Vec::new();
    for number in 0..1000 {
        let hash = cache.hash(&code(number));
        assert_eq!(cache.entry_address(hash), None);
        insert(&mut cache, number, redirect("https://e/"));
        assert!(lies_in(cache.search_address(hash), index));
        if let Some(address) = cache.entry_address(hash) {
            assert!(lies_in(address, ring));
            entries.push(address);
        }
    }
    // Few stand elsewhere than at the place that a lookup tries first, and no two in one place.
    assert!(entries.len() > 900, "{}", entries.len());
    assert!(entries.is_sorted_by(|before, after| before < after));
}
