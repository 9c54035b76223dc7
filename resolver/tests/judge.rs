//! The edge answers as the judge does, from a reply and from its cache.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use shortlink_resolver::vocabulary::judge::{Found, judge};
use shortlink_resolver::vocabulary::{Code, Record};
use shortlink_resolver::{
    Address, Answer, CacheSettings, Edge, EdgeSettings, LookUp, MissReason, NodeId, NodeSettings,
    Now, TopologySettings,
};

/// The values of a link's and of a campaign's key.
#[derive(Debug)]
struct Redis {
    link: Option<String>,
    campaign: Option<String>,
}

fn validities() -> impl Strategy<Value = String> {
    (0..40u64, 0..40u64, 0..4).prop_map(|(since, length, kind)| match kind {
        0 => "0".to_owned(),
        1 => since.to_string(),
        2 => format!("{since}-"),
        _ => format!("{since}-{}", since + length),
    })
}

/// Values that are records, or could be taken for some.
fn values() -> impl Strategy<Value = String> {
    let record = (
        prop_oneof![4 => Just("1"), 4 => Just("2"), 1 => Just("3")],
        select(vec![
            "302", "301", "307q", "C4f", "C4f", "C", "410", "404", "X",
        ]),
        prop_oneof![8 => Just("1"), 1 => Just("0"), 1 => Just("9007199254740992")],
        validities(),
        select(vec![
            "https://e.com/",
            "https://e.com/{0}/{code}",
            "https://e.com/{1}",
            "https://{0}/",
            "javascript:alert(1)",
            "T14:https://e.com/E15:https://e.com/eN15:https://e.com/n",
            "T17:https://e.com/{0}R22:d=i https://e.com/{0}iE15:https://e.com/e",
            "T14:https://e.com/E15:https://e.com/eN15:https://e.com/nP15:https://e.com/p",
            "a",
            "a&b",
            "",
        ]),
    );
    let whole = record.prop_map(|(version, kind, revision, validity, rest)| match kind {
        "410" => format!("{version} {kind} {revision}"),
        "404" => format!("{version} {kind} 0"),
        _ => format!("{version} {kind} {revision} {validity} {rest}"),
    });
    let text = prop_oneof![8 => whole, 1 => Just("c4f a".to_owned())];
    (text, option::weighted(0.1, any::<Index>())).prop_map(|(text, cut)| match cut {
        Some(cut) => text[..cut.index(text.len())].to_owned(),
        None => text,
    })
}

fn found(value: Option<&String>) -> Found<'_> {
    let value = value.ok_or(MissReason::Absent)?;
    Ok(Record::parse(value.as_bytes())?)
}

impl Redis {
    /// The replies to the commands of an edge.
    fn replies(&self, commands: &str) -> String {
        let mut replies = String::new();
        for command in commands.split('*').skip(1) {
            let value = if command.contains("sl:l:") {
                &self.link
            } else if command.contains("sl:c:") {
                &self.campaign
            } else {
                replies.push_str("+OK\r\n");
                continue;
            };
            replies.push_str(&match value {
                Some(text) => format!("${}\r\n{text}\r\n", text.len()),
                None => "_\r\n".to_owned(),
            });
        }
        replies
    }

    fn answer(&self, code: &Code, second: u64) -> String {
        let (link, campaign) = (found(self.link.as_ref()), found(self.campaign.as_ref()));
        // Nothing proves the data of this Redis.
        show(judge(code, link, campaign, second, &mut Vec::new()).vouched_by(|| false))
    }
}

fn show(answer: Answer<'_>) -> String {
    format!("{:?}", answer.map(String::from_utf8_lossy))
}

fn at(second: u64) -> Now {
    Now {
        ms: second * 1000,
        unix: second,
    }
}

fn edge() -> Edge<()> {
    let settings = EdgeSettings {
        nodes: NodeSettings::default(),
        topology: TopologySettings::Server(Address::Unix("/redis".to_owned())),
        replica: None,
        cache: Some(CacheSettings {
            bytes: 1 << 16,
            stale_for: 0,
            longest_age: 1_000_000,
        }),
    };
    let mut edge = Edge::new(settings, 0, 1);
    edge.connecting(node(), at(0));
    edge.connected(node(), at(0));
    receive(&mut edge, "%0\r\n+OK\r\n", at(0));
    let done = edge.next_completion(node(), at(0));
    assert!(matches!(done, Ok(None)), "{done:?}");
    edge
}

fn node() -> NodeId {
    NodeId::new(0)
}

fn receive(edge: &mut Edge<()>, text: &str, now: Now) {
    let output = edge.output(node()).len();
    edge.wrote(node(), output, now.ms);
    edge.input_space(node())[..text.len()].copy_from_slice(text.as_bytes());
    edge.received(node(), text.len(), now.ms);
}

fn ask(edge: &mut Edge<()>, code: &Code, redis: &Redis, now: Now) -> String {
    if let LookUp::Answered(answer, _) = edge.look_up(code, (), now) {
        return show(answer);
    }
    // The record of a campaign is asked for once the record of its link is there.
    for _ in 0..2 {
        let commands = String::from_utf8_lossy(edge.output(node())).into_owned();
        receive(edge, &redis.replies(&commands), now);
        if let Some(done) = edge.next_completion(node(), now).expect("good replies") {
            return show(done.answer);
        }
    }
    panic!("the request waits for more than two replies");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_edge_answers_as_the_judge_does(
        link in option::weighted(0.95, values()),
        campaign in option::weighted(0.9, values()),
        mut seconds in vec(0..60u64, 1..12),
    ) {
        let (redis, mut edge) = (Redis { link, campaign }, edge());
        let code: Code = "abc".parse().expect("a code");
        seconds.sort_unstable();
        for second in seconds {
            let answer = ask(&mut edge, &code, &redis, at(second));
            prop_assert_eq!(answer, redis.answer(&code, second), "at {}", second);
        }
    }
}
