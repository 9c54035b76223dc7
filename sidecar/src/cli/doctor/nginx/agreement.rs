//! Settings that must be equal in nginx' configuration and the sidecar's.

use std::path::PathBuf;

use vocabulary::{Alphabet, BodyLengths, Check, CheckKeys, CodeRules, KeyPrefix};

use super::super::{Finding, Verdict};
use super::dump::{Directive, Dump};
use crate::config::Config;

/// Compares them.
pub(super) fn examine(dump: &Dump, config: &Config) -> Vec<Finding> {
    vec![
        streams(dump, config.visits.streams),
        prefix(dump, &config.redis.prefix),
        codes(dump, &config.codes.rules, config.codes.policy.lengths),
    ]
}

/// The value of `name=value`.
fn parameter<'a>(directive: &'a Directive, name: &str) -> Option<&'a str> {
    let mut words = directive.words.iter();
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn streams(dump: &Dump, ours: u16) -> Finding {
    let check = "streams";
    let recorded = || {
        let all = dump.all("shortlink_visits");
        all.filter(|it| it.words.get(1).is_some_and(|word| word == "on"))
    };
    if recorded().next().is_none() {
        let advice = "shortlink_visits on, if visits are to be counted";
        return Finding::warn(check, "nginx records no visits", advice);
    }
    // Those in servers and locations have no such parameter.
    let streams = recorded().find_map(|it| parameter(it, "streams"));
    let theirs = streams.map_or(Some(1), |text| text.parse().ok());
    let theirs: u16 = theirs.unwrap_or_default();
    if theirs == ours {
        return Finding::ok(check, format!("visits come in {ours}, and are read there"));
    }
    let found = format!("nginx has streams={theirs}, and visits.streams is {ours}");
    let advice = "set both to the same number: visits in a stream without a reader stay in Redis";
    Finding::new(check, Verdict::of(true, theirs > ours), found, advice)
}

fn prefix(dump: &Dump, ours: &KeyPrefix) -> Finding {
    let default = KeyPrefix::default();
    let of_block = |block: &Directive| {
        let prefix = dump.value(&block.words.join(" "), "prefix");
        prefix.unwrap_or(default.as_str())
    };
    // One of several belongs to this sidecar.
    let mut theirs: Vec<&str> = dump.all("shortlink_redis").map(of_block).collect();
    if theirs.is_empty() {
        theirs.push(default.as_str());
    }
    let ours = ours.as_str();
    if theirs.contains(&ours) {
        return Finding::ok(
            "prefix",
            format!("both have keys of Redis begin with {ours}"),
        );
    }
    let theirs = theirs.join(" or ");
    let found = format!("nginx reads keys that begin with {theirs}, the sidecar writes {ours}");
    let advice = "make `prefix` of shortlink_redis and redis.prefix the same";
    Finding::fail("prefix", found, advice)
}

/// The rules for codes of a directive, without the check keys, and the file that holds those.
fn rules_of(dump: &Dump, directive: Option<&Directive>) -> Option<(CodeRules, Option<PathBuf>)> {
    let Some(directive) = directive else {
        return Some((CodeRules::default(), None));
    };
    let mut rules = CodeRules {
        ignores_case: directive.words.iter().any(|word| word == "ignore_case"),
        ..CodeRules::default()
    };
    if let Some(bodies) = parameter(directive, "body") {
        rules.bodies = BodyLengths::parse(bodies.as_bytes())?;
    }
    if let Some(alphabet) = parameter(directive, "alphabet") {
        rules.alphabet = Alphabet::by_name(alphabet.as_bytes())?;
    }
    match directive.words.get(1)?.as_str() {
        "none" => rules.check = Check::None,
        "luhn" => rules.check = Check::Luhn,
        "keyed" => {
            let keys = parameter(directive, "keys")?;
            // Beside the file of the whole configuration, which is dumped first.
            let main = dump.file_of("http")?;
            return Some((rules, Some(main.parent()?.join(keys))));
        }
        _ => return None,
    }
    Some((rules, None))
}

/// Compares the rules for codes. Of several directives, one belongs to this sidecar.
fn codes(dump: &Dump, ours: &CodeRules, lengths: (u8, u8)) -> Finding {
    let mut others = dump.all("shortlink_check");
    let first = codes_of(dump, others.next(), ours, lengths);
    let mut findings = others.map(|it| codes_of(dump, Some(it), ours, lengths));
    match first.verdict {
        Verdict::Ok => first,
        _ => findings
            .find(|finding| finding.verdict == Verdict::Ok)
            .unwrap_or(first),
    }
}

fn codes_of(
    dump: &Dump,
    directive: Option<&Directive>,
    ours: &CodeRules,
    (shortest, longest): (u8, u8),
) -> Finding {
    let check = "codes";
    let advice =
        "make shortlink_check and [codes] the same, or nginx answers 404 to links that there are";
    let Some((theirs, keys_file)) = rules_of(dump, directive) else {
        return Finding::warn(check, "shortlink_check is none that is known here", advice);
    };
    let mut apart = Vec::new();
    if theirs.alphabet != ours.alphabet {
        apart.push("the alphabet".to_owned());
    }
    match (&keys_file, &ours.check) {
        (Some(file), Check::Keyed(ours)) => {
            let shown = file.display();
            match std::fs::read(file) {
                Err(error) => {
                    let found = format!("{shown} can't be read: {error}");
                    return Finding::warn(check, found, "run this as root");
                }
                Ok(text) if CheckKeys::parse(&text).ok().as_ref() != Some(ours) => {
                    apart.push(format!("the keys ({shown} and codes.check_keys_file)"));
                }
                Ok(_) => {}
            }
        }
        (None, check) if *check == theirs.check => {}
        _ => apart.push("the check character".to_owned()),
    }
    if theirs.ignores_case != ours.ignores_case {
        apart.push("ignore_case".to_owned());
    }
    let (least, most) = (theirs.bodies.shortest(), theirs.bodies.longest());
    if least < shortest || most > longest {
        apart.push(format!(
            "the length (body={least}-{most}, and {shortest} to {longest})"
        ));
    }
    if apart.is_empty() {
        Finding::ok(check, "both know codes by the same rules")
    } else {
        let found = format!("nginx and the sidecar differ in {}", apart.join(", "));
        Finding::fail(check, found, advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(text: &str) -> Dump {
        Dump::read(&format!(
            "# configuration file /etc/nginx/nginx.conf:\nhttp {{ {text} }}"
        ))
    }

    #[test]
    fn visits_must_be_read_where_they_are_written() {
        for (text, ours, verdict) in [
            ("shortlink_visits on;", 1, Verdict::Ok),
            ("shortlink_visits on batch=1 streams=4;", 4, Verdict::Ok),
            ("shortlink_visits on streams=4;", 1, Verdict::Fail),
            ("shortlink_visits on;", 4, Verdict::Warn),
            ("shortlink_visits off;", 1, Verdict::Warn),
            (
                "server { shortlink_visits on; } shortlink_visits on streams=4;",
                4,
                Verdict::Ok,
            ),
        ] {
            assert_eq!(streams(&dump(text), ours).verdict, verdict, "{text}");
        }
    }

    #[test]
    fn keys_of_redis_must_begin_alike() {
        let ours = KeyPrefix::default();
        let verdict = |text: &str| prefix(&dump(text), &ours).verdict;
        assert_eq!(verdict("shortlink_redis { server a:1; }"), Verdict::Ok);
        assert_eq!(verdict("shortlink_redis { prefix sl:; }"), Verdict::Ok);
        assert_eq!(verdict("shortlink_redis { prefix x:; }"), Verdict::Fail);
        let two = "shortlink_redis { prefix x:; } shortlink_redis b { prefix sl:; }";
        assert_eq!(verdict(two), Verdict::Ok);
        let two = "shortlink_redis { prefix x:; } shortlink_redis b { prefix y:; }";
        assert_eq!(verdict(two), Verdict::Fail);
    }

    #[test]
    fn codes_must_be_known_by_the_same_rules() {
        let ours = CodeRules::default();
        for (text, verdict) in [
            ("", Verdict::Ok),
            ("shortlink_check luhn body=7 alphabet=base62;", Verdict::Ok),
            ("shortlink_check luhn body=7-8;", Verdict::Ok),
            ("shortlink_check luhn body=7-9;", Verdict::Fail),
            ("shortlink_check luhn body=6;", Verdict::Fail),
            ("shortlink_check none;", Verdict::Fail),
            ("shortlink_check luhn ignore_case;", Verdict::Fail),
            (
                "shortlink_check none; server { shortlink_check luhn; }",
                Verdict::Ok,
            ),
            (
                "shortlink_check none; server { shortlink_check luhn body=6; }",
                Verdict::Fail,
            ),
            ("shortlink_check luhn alphabet=unambiguous;", Verdict::Fail),
            ("shortlink_check keyed keys=none;", Verdict::Fail),
            ("shortlink_check other;", Verdict::Warn),
        ] {
            assert_eq!(codes(&dump(text), &ours, (7, 8)).verdict, verdict, "{text}");
        }
    }

    #[test]
    fn keys_of_codes_are_compared() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("keys");
        let key = "00112233445566778899aabbccddeeff\n";
        std::fs::write(&file, key).expect("a file");
        let ours = CodeRules {
            check: Check::Keyed(CheckKeys::parse(key.as_bytes()).expect("keys")),
            ..CodeRules::default()
        };
        let text = format!("shortlink_check keyed keys={};", file.display());
        assert_eq!(codes(&dump(&text), &ours, (7, 8)).verdict, Verdict::Ok);
        std::fs::write(&file, key.replace('0', "1")).expect("a file");
        let finding = codes(&dump(&text), &ours, (7, 8));
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(finding.found.contains("the keys"), "{}", finding.found);
        assert_eq!(
            codes(&dump("shortlink_check luhn;"), &ours, (7, 8)).verdict,
            Verdict::Fail
        );
    }
}
