//! For every state of SQL and Redis, at any time, these agree: the edge with its fallback, the
//! explanation, and the filter by state in SQL.

use jiff::SignedDuration;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use shortlink_core::campaign::{CampaignTarget, ParameterValues};
use shortlink_core::link::{Destination, Second};
use shortlink_core::ports::Listing;
use shortlink_core::target::Target;
use shortlink_core::testing::{ManualClock, MemoryPublisher, campaign, link, moment};
use shortlink_store::testing::TemporaryStore;
use tokio_util::task::TaskTracker;
use vocabulary::Validity;

use super::*;
use crate::resolve::Resolver;

const START: &str = "2026-06-01T00:00:00Z";

/// The state that links and campaigns share in SQL; seconds count from [`START`].
#[derive(Clone, Debug)]
struct Draft {
    since: Option<i64>,
    until: Option<i64>,
    is_paused: bool,
    is_revoked: bool,
    redis: InRedis,
}

/// The value of a key in Redis.
#[derive(Clone, Debug)]
enum InRedis {
    /// The record that SQL implies.
    Same,
    /// The beginning of that record.
    Cut(Index),
    /// Another text, in which `S` stands for [`START`].
    Other(&'static str),
    Nothing,
}

fn drafts() -> impl Strategy<Value = Draft> {
    let redis = prop_oneof![
        6 => Just(InRedis::Same),
        1 => any::<Index>().prop_map(InRedis::Cut),
        5 => select(vec![
            "1 302 9 0 https://e.org/",
            "1 307q 9 S-S9 https://e.org/{0}",
            "1 302 1 S https://e.org/",
            "1 302 9 0 javascript:alert(1)",
            "1 302 9 0 https://{0}/",
            "2 302 9 0 https://e.org/",
            "1 410 9",
            "1 404 0",
            "c1 a",
            "1 C2 9 S- a&b",
            "c7777 a",
            "no record",
            "",
        ])
        .prop_map(InRedis::Other),
        1 => Just(InRedis::Nothing),
    ];
    let bound = || prop::option::of(0..100i64);
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    (bound(), bound(), flags, redis).prop_map(|(since, until, (is_paused, is_revoked), redis)| {
        Draft {
            since,
            until: until.map(|until| until + since.map_or(0, |since| since + 1)),
            is_paused,
            is_revoked,
            redis,
        }
    })
}

impl Draft {
    fn validity(&self) -> Validity {
        let bound = |bound: Option<i64>| Some(second(bound?)?.non_zero());
        Validity::new(bound(self.since), bound(self.until)).expect("a span")
    }

    fn stopped(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let at = |is_so: bool| is_so.then(|| moment(START));
        (at(self.is_paused), at(self.is_revoked))
    }

    /// Returns the value in Redis for this record in SQL.
    fn value(&self, record: &Record<'_>) -> Option<Vec<u8>> {
        let text = record.to_vec();
        Some(match &self.redis {
            InRedis::Same => text,
            InRedis::Cut(at) => text[..at.index(text.len())].to_vec(),
            InRedis::Other(text) => {
                let start = moment(START).as_second();
                let text = text.replace("S9", &(start + 9).to_string());
                text.replace('S', &start.to_string()).into_bytes()
            }
            InRedis::Nothing => return None,
        })
    }
}

fn second(from_start: i64) -> Option<Second> {
    Second::at(moment(START) + SignedDuration::from_secs(from_start))
}

/// A link's own target, or the number of its campaign; and its values.
type Leads = (Result<&'static str, usize>, &'static str);

fn destinations() -> impl Strategy<Value = Leads> {
    let targets = vec![
        "https://e.com/",
        "http://e.com/?a#b",
        "javascript:x",
        "https://e.com/ü",
    ];
    prop_oneof![
        1 => select(targets).prop_map(|target| (Ok(target), "")),
        2 => (0..8usize, select(vec!["", "a", "a&b"])).prop_map(|(n, values)| (Err(n), values)),
    ]
}

fn templates() -> impl Strategy<Value = &'static str> {
    select(vec![
        "https://e.com/",
        "https://e.com/{0}?{code}",
        "https://e.com/{1}",
        "https://{0}/",
    ])
}

/// Status and target of an answer.
type Response = (u16, Option<String>);

fn response(answer: judge::Answer<&[u8]>) -> Response {
    let answer = Answer::new(answer, Source::Redis, None, None, Default::default());
    (answer.status(), answer.location().map(str::to_owned))
}

/// The answer of an edge that finds these values in Redis, unless it uses the fallback.
fn edge(
    code: &Code,
    link: Option<&[u8]>,
    campaigns: &[(Campaign, Option<Vec<u8>>)],
    now: Timestamp,
) -> Option<Response> {
    let link = Record::parse(link?).ok()?;
    let campaign = match link {
        Record::CampaignLink(link) => campaigns.iter().find(|(it, _)| it.id == link.campaign),
        _ => None,
    };
    let campaign = campaign.and_then(|(_, value)| value.as_deref());
    let campaign = match campaign.map(Record::parse) {
        Some(record) => record.map_err(MissReason::from),
        None => Err(MissReason::Absent),
    };
    let mut room = Vec::new();
    match judge(code, Ok(link), campaign, since_1970(now), &mut room) {
        judge::Answer::Miss(_) => None,
        answer => Some(response(answer)),
    }
}

async fn fallback(resolver: &Resolver, code: &Code) -> Response {
    match resolver
        .resolve(code.as_bytes(), &crate::resolve::tests::Phone)
        .await
        .map(|it| it.answer)
    {
        Ok(judge::Answer::Redirect { target, status, .. }) => (status.code(), Some(target)),
        Ok(judge::Answer::Gone) => (410, None),
        Ok(judge::Answer::NotYet | judge::Answer::Unknown) => (404, None),
        Ok(judge::Answer::Miss(_)) | Err(_) => (503, None),
    }
}

/// The status that follows from the states, unless the link may redirect.
fn status_of(link: State, campaign: Option<State>) -> Option<u16> {
    match (link, campaign) {
        (State::Live, None | Some(State::Live)) => None,
        (State::Scheduled, _) | (State::Live, Some(State::Scheduled)) => Some(404),
        _ => Some(410),
    }
}

async fn compare(
    campaigns: Vec<(Draft, &'static str)>,
    links: Vec<(Draft, Leads)>,
    mut times: Vec<i64>,
) {
    let kept = TemporaryStore::new().await;
    let store = &kept.store;
    let redis = Arc::new(MemoryPublisher::default());
    let clock = Arc::new(ManualClock::at(START));
    let explainer = Explainer {
        store: Arc::clone(store),
        index: Arc::clone(&redis) as _,
        rules: CodeRules::default(),
        clock: Arc::clone(&clock) as _,
    };
    let resolver = Resolver::new(
        Arc::clone(store),
        // The fallback writes to a separate Redis.
        Arc::new(MemoryPublisher::default()),
        CodeRules::default(),
        Arc::clone(&clock) as _,
        TaskTracker::new(),
    );
    let mut made = Vec::new();
    for (draft, template) in campaigns {
        let (paused_at, revoked_at) = draft.stopped();
        let names = vec!["a".to_owned(), "b".to_owned()];
        let mut campaign = Campaign {
            target: CampaignTarget::from_stored(template.to_owned(), names),
            validity: draft.validity(),
            paused_at,
            revoked_at,
            ..campaign()
        };
        campaign.id = store.create_campaign(&campaign).await.expect("a store");
        let value = draft.value(&campaign.record());
        redis.set_campaign_record(campaign.id, value.as_deref());
        made.push((campaign, value));
    }
    let campaigns = made;
    let mut made = Vec::new();
    for (number, (draft, (destination, values))) in links.into_iter().enumerate() {
        let (paused_at, revoked_at) = draft.stopped();
        let link = Link {
            destination: match destination {
                Ok(target) => Destination::Target(Target::from_stored(target.to_owned())),
                Err(number) => Destination::Campaign {
                    id: campaigns[number % campaigns.len()].0.id,
                    values: ParameterValues::from_stored(values.to_owned()),
                },
            },
            valid_since: draft.since.and_then(second),
            valid_until: draft.until.and_then(second),
            paused_at,
            revoked_at,
            ..link(&format!("c{number}"))
        };
        let value = draft.value(&link.record());
        if let Some(text) = &value {
            redis.set_record(link.code.as_str(), text.as_slice());
        }
        made.push((link, value));
    }
    let links = made;
    let all = links.iter().map(|(link, _)| link.clone()).collect();
    let created = store.create_links(all).await.expect("a store");
    assert_eq!(created.taken, [0usize; 0]);
    let as_in_sql: Vec<_> = campaigns
        .iter()
        .map(|(campaign, _)| (campaign.clone(), Some(campaign.record().to_vec())))
        .collect();

    times.sort_unstable();
    for time in times {
        let passed = clock.now().duration_since(moment(START));
        clock.advance(SignedDuration::from_millis(time) - passed);
        let now = clock.now();
        for (link, value) in &links {
            let code = &link.code;
            let campaign = link.destination.campaign();
            let campaign = campaigns.iter().find(|(it, _)| Some(it.id) == campaign);
            let states = (
                link.state(now),
                campaign.map(|(campaign, _)| campaign.state(now)),
            );
            let record = link.record().to_vec();
            let answered = fallback(&resolver, code).await;
            let expected = edge(code, Some(&record), &as_in_sql, now).unwrap_or((503, None));
            assert_eq!(answered, expected, "the fallback for {link:?}");
            let status = status_of(states.0, states.1);
            assert!(
                status.is_none_or(|status| answered == (status, None)),
                "the fallback for {states:?}: {answered:?}"
            );

            let explanation = explainer
                .explain(code, &AssumedVisitor::default(), None)
                .await
                .expect("a store");
            let given = &explanation.answer;
            let explained = (given.status(), given.location().map(str::to_owned));
            let (expected, source) = match edge(code, value.as_deref(), &campaigns, now) {
                Some(expected) => (expected, Source::Redis),
                None => (answered, Source::Database),
            };
            assert_eq!(explained, expected, "{explanation:?}");
            assert_eq!(given.source, source, "{explanation:?}");
            let named = match given.rule {
                Rule::Link(state) => status_of(state, None),
                Rule::Campaign(state) => status_of(State::Live, Some(state)),
                Rule::Gone => Some(410),
                Rule::Unknown | Rule::Negative | Rule::WrongCheck => Some(404),
                Rule::NoTarget => Some(503),
            };
            let is_redirect = explained.1.is_some();
            assert_eq!(
                named,
                (!is_redirect).then_some(explained.0),
                "{explanation:?}"
            );
        }
        for state in State::ALL {
            let listing = Listing {
                state: Some((state, now)),
                limit: 1000,
                ..Listing::default()
            };
            let listed = store.list_links(&listing).await.expect("a store");
            let mut listed: Vec<Code> = listed.into_iter().map(|link| link.code).collect();
            let in_state = links.iter().filter(|(link, _)| link.state(now) == state);
            let mut expected: Vec<Code> = in_state.map(|(link, _)| link.code).collect();
            listed.sort_unstable_by_key(Code::to_string);
            expected.sort_unstable_by_key(Code::to_string);
            assert_eq!(listed, expected, "{state:?} at {now}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3,
        max_shrink_iters: 50,
        ..ProptestConfig::default()
    })]

    #[test]
    fn records_fallback_explanation_and_sql_agree(
        campaigns in vec((drafts(), templates()), 3..8),
        links in vec((drafts(), destinations()), 300),
        times in vec(0..220_000i64, 3),
    ) {
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        runtime.block_on(compare(campaigns, links, times));
    }
}
