//! Clicks of links and of campaigns, and clicked messages: as all visits and receipts together show them, whatever happened
//! to those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use secrecy::ExposeSecret;
use shortlink_core::bulk::{BulkAction, NewBulkJob, Selection};
use shortlink_core::link::{Change, Destination, Link, ParameterValues};
use shortlink_core::ports::{LinkClicks, Listing, TimeSpan};
use shortlink_core::receipt::{DeliveryReceipt, ReceiptOf, ReceiptOutcome, ReceiptStatus};
use shortlink_core::testing::{campaign, link, moment};
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::{Class, Classification};
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use vocabulary::{CampaignId, Code};

use super::visits::of_class;
use crate::testing::*;
use crate::{BulkCreated, Scheme, Store, in_every_store_of_visits};

in_every_store_of_visits! {
    clicks_are_those_of_all_visits,
    clicks_are_exact_while_several_store_correct_and_erase,
    an_earlier_visit_moves_the_first_click,
    retention_leaves_clicks_and_they_are_corrected_afterwards,
    a_deleted_link_stays_counted_in_its_campaign,
    clicks_of_stored_visits_are_counted_by_the_migration,
    clicked_messages_are_counted_by_the_migration,
    links_are_listed_by_whether_they_were_clicked,
}

const LINKS: usize = 30;
const FIRST_DAY: &str = "2026-05-28T00:00:00Z";
const DAYS: i64 = 4;
const CLASSES: [Class; 4] = [Class::Human, Class::Human, Class::Scanner, Class::Preview];

/// Links of two campaigns and of none, and what was counted of deleted ones.
struct Scene {
    fixture: Fixture,
    stores: Vec<Arc<Store>>,
    campaigns: Vec<CampaignId>,
    codes: Vec<Code>,
    deleted: BTreeSet<Code>,
    /// Links that had clicks when they were deleted, by campaign and hour.
    left: BTreeMap<(CampaignId, i64), u64>,
    /// The last status of each message whose link exists.
    messages: BTreeMap<Code, Status>,
    /// The messages whose links were deleted, by campaign, network and status, and those that were clicked.
    left_messages: BTreeMap<(CampaignId, String, ReceiptStatus), [u64; 2]>,
    sequence: u64,
}

type Status = (Timestamp, ReceiptStatus, String);

type Clicks = BTreeMap<String, LinkClicks>;

impl Scene {
    async fn new(fixture: Fixture) -> Self {
        let store = &fixture.store;
        let campaigns = join_all(
            (0..2).map(|_| async { store.create_campaign(&campaign()).await.expect("room") }),
        );
        let campaigns: Vec<CampaignId> = campaigns.await;
        // Codes of sixteen characters have no number.
        let text = |n| match n % 5 {
            0 => format!("ABCDEFGHIJKLMN{n:02}"),
            _ => format!("c{n:02}"),
        };
        let codes: Vec<Code> = (0..LINKS).map(|n| code(&text(n))).collect();
        for (n, code) in codes.iter().enumerate() {
            let mut link = link(code.as_str());
            if let Some(id) = campaigns.get(n % 3) {
                link.destination = Destination::Campaign {
                    id: *id,
                    values: ParameterValues::default(),
                };
            }
            create(store, link).await;
        }
        let stores = vec![Arc::clone(store), fixture.open().await];
        Self {
            fixture,
            stores,
            campaigns,
            codes,
            deleted: BTreeSet::new(),
            left: BTreeMap::new(),
            messages: BTreeMap::new(),
            left_messages: BTreeMap::new(),
            sequence: 0,
        }
    }

    fn campaign_of(&self, text: &str) -> Option<CampaignId> {
        let place = self.codes.iter().position(|code| code.as_str() == text);
        self.campaigns.get(place.expect("a link") % 3).copied()
    }

    /// New visits, and some of the earlier ones once more.
    fn visits(&mut self, random: &mut StdRng, most: u64) -> Vec<Visit> {
        let repeated = random.random_range(0..=self.sequence.min(5));
        let first = self.sequence - repeated;
        self.sequence += random.random_range(1..=most);
        let mut visits: Vec<Visit> = (first..self.sequence)
            .map(|sequence| random_visit(&self.codes, sequence))
            .collect();
        visits.shuffle(random);
        visits
    }

    /// Receipts of some links that exist, in any order.
    fn receipts(&mut self, random: &mut StdRng, most: usize) -> Vec<DeliveryReceipt> {
        let links = self.codes.clone();
        let receipts = (0..random.random_range(1..=most)).filter_map(|_| {
            let code = *links.choose(random).expect("some");
            let after = SignedDuration::from_secs(random.random_range(0..20));
            let status = (
                moment(FIRST_DAY) + after,
                *ReceiptStatus::ALL.choose(random).expect("some"),
                (*["", "Alpha", "Beta"].choose(random).expect("some")).to_owned(),
            );
            if self.deleted.contains(&code) {
                return None;
            }
            let known = self.messages.entry(code).or_insert_with(|| status.clone());
            *known = status.clone().max(known.clone());
            let (at, status, network) = status;
            Some(DeliveryReceipt {
                of: ReceiptOf::Code(code),
                at,
                is_timed: true,
                status,
                network,
            })
        });
        receipts.collect()
    }

    /// The clicks of all links by all stored visits.
    async fn expected(&self) -> Clicks {
        let mut clicks = Clicks::new();
        for visit in all_visits(&self.fixture.store).await {
            let is_deleted = self.deleted.iter().any(|it| it.as_str() == visit.code);
            if visit.class != Class::Human || is_deleted {
                continue;
            }
            let it = clicks.entry(visit.code).or_insert(LinkClicks {
                first_at: visit.at,
                last_at: visit.at,
                visits: 0,
            });
            it.first_at = it.first_at.min(visit.at);
            it.last_at = it.last_at.max(visit.at);
            it.visits += 1;
        }
        clicks
    }

    async fn check(&self) {
        let expected = self.expected().await;
        assert_eq!(clicks(&self.fixture.store, &self.codes).await, expected);
        assert_eq!(rows(&self.fixture).await, expected.len() as i64, "rows");
        for id in &self.campaigns {
            let mut hours: BTreeMap<i64, u64> = BTreeMap::new();
            for ((of, hour), links) in &self.left {
                if of == id {
                    *hours.entry(*hour).or_default() += links;
                }
            }
            for (code, clicks) in &expected {
                if self.campaign_of(code) == Some(*id) {
                    *hours.entry(hour_of(clicks.first_at)).or_default() += 1;
                }
            }
            assert_eq!(first_clicks(&self.fixture.store, *id).await, hours, "{id}");
        }
        self.check_messages(&expected).await;
    }

    async fn check_messages(&self, clicks: &Clicks) {
        let mut expected = self.left_messages.clone();
        for (code, (_, status, network)) in &self.messages {
            if let Some(id) = self.campaign_of(code.as_str()) {
                let of = expected.entry((id, network.clone(), *status)).or_default();
                of[0] += 1;
                of[1] += u64::from(clicks.contains_key(code.as_str()));
            }
        }
        let mut counted = BTreeMap::new();
        for id in &self.campaigns {
            let counts = self.fixture.store.count_receipts(*id).await;
            for it in counts.expect("a store") {
                let clicked = it.clicked.expect("few clicks");
                counted.insert((*id, it.network, it.status), [it.messages, clicked]);
            }
        }
        assert_eq!(counted, expected);
    }

    async fn delete(&mut self, random: &mut StdRng) {
        let code = *self.codes.choose(random).expect("some");
        if self.deleted.contains(&code) {
            return;
        }
        let clicks = self.expected().await.get(code.as_str()).copied();
        let message = self.messages.remove(&code);
        if let Some(id) = self.campaign_of(code.as_str()) {
            if let Some(clicks) = clicks {
                *self.left.entry((id, hour_of(clicks.first_at))).or_default() += 1;
            }
            if let Some((_, status, network)) = message {
                let of = self.left_messages.entry((id, network, status)).or_default();
                *of = [of[0] + 1, of[1] + u64::from(clicks.is_some())];
            }
        }
        let store = &self.fixture.store;
        let deleted = store.delete_links(vec![(code, 1)], moment(NOW)).await;
        assert_eq!(deleted.expect("a store"), 1);
        self.deleted.insert(code);
    }
}

fn hour_of(at: Timestamp) -> i64 {
    at.as_millisecond() / 3_600_000
}

fn random_visit(codes: &[Code], sequence: u64) -> Visit {
    // The same visit whenever it comes: some times are at the begin or the end of an hour.
    let mut own = StdRng::seed_from_u64(sequence);
    let mut at = moment(FIRST_DAY).as_millisecond() + own.random_range(0..DAYS * 86_400_000);
    if own.random_bool(0.3) {
        at = at / 3_600_000 * 3_600_000 - own.random_range(0..2);
    }
    // Few links have most visits.
    let place = own
        .random_range(0..codes.len())
        .min(own.random_range(0..codes.len()));
    let class = *CLASSES.choose(&mut own).expect("some");
    let mut visit = of_class(class, visit(sequence, codes[place].as_str(), FIRST_DAY));
    visit.id.origin = own.random_range(0..3);
    visit.at = Timestamp::from_millisecond(at).expect("a time");
    visit
}

/// The number of rows of links, or of links that exist where ClickHouse has rows of others.
async fn rows(fixture: &Fixture) -> i64 {
    if fixture.options.visits.is_none() {
        return fixture.count("link_clicks").await;
    }
    let listing = Listing {
        clicked: Some(true),
        limit: 1000,
        ..Listing::default()
    };
    let listed = fixture.store.list_links(&listing).await;
    listed.expect("a store").len() as i64
}

async fn all_visits(store: &Store) -> Vec<StoredVisit> {
    let page = store.visits_after(i64::MIN, TimeSpan::default(), 1_000_000);
    page.await.expect("a store").visits
}

async fn clicks(store: &Store, codes: &[Code]) -> Clicks {
    let found = store.link_clicks(codes).await.expect("a store");
    let found = found.into_iter();
    found.map(|(code, it)| (code.to_string(), it)).collect()
}

async fn first_clicks(store: &Store, id: CampaignId) -> BTreeMap<i64, u64> {
    let found = store.first_clicks(id).await.expect("a store");
    let found = found.into_iter();
    found.map(|it| (hour_of(it.hour), it.links)).collect()
}

/// Classes for some visits, as a judge finds them.
fn verdicts(random: &mut StdRng, visits: Vec<StoredVisit>) -> Vec<(StoredVisit, Verdict)> {
    let agent = visit(0, "any", FIRST_DAY).agent;
    let judged = visits.into_iter().map(|visit| {
        let classification = Classification {
            class: *CLASSES.choose(random).expect("some"),
            reason: "judged",
            ruleset: visit.ruleset + 1,
        };
        let agent = Arc::clone(&agent);
        (
            visit,
            Verdict {
                classification,
                agent,
            },
        )
    });
    judged.collect()
}

async fn keep_receipts(store: &Store, receipts: Vec<DeliveryReceipt>) {
    let outcomes = store.keep_receipts(receipts, None).await;
    let outcomes = outcomes.expect("a store");
    assert!(!outcomes.contains(&ReceiptOutcome::Unknown));
}

async fn reclassify(store: &Store, verdicts: Vec<(StoredVisit, Verdict)>) {
    let done = store.reclassify_visits(verdicts, None, moment(NOW)).await;
    done.expect("a store");
}

pub(super) async fn erase_campaign(store: &Store, id: CampaignId, until: Timestamp) {
    let job = NewBulkJob {
        own: None,
        key_id: "key".to_owned(),
        action: BulkAction::Erase,
        selection: Selection::Campaign(id),
        change: Change::default(),
        is_trial: false,
        idempotency: None,
        created_at: until,
    };
    let BulkCreated::Job(job) = store.create_bulk_job(job).await.expect("a store") else {
        panic!("a job of another request");
    };
    let step = || async { store.step_bulk_job(job.id, until).await.expect("a store") };
    while !step().await.is_last {}
}

/// A time of the first half of the visits, so that some are later.
fn early(random: &mut StdRng) -> Timestamp {
    moment(FIRST_DAY) + SignedDuration::from_mins(random.random_range(0..DAYS * 24 * 30))
}

async fn clicks_are_those_of_all_visits(fixture: Fixture) {
    let mut scene = Scene::new(fixture).await;
    for seed in 0..80 {
        let random = &mut StdRng::seed_from_u64(seed);
        let store = Arc::clone(&scene.stores[random.random_range(0..2)]);
        match random.random_range(0..26) {
            0..8 => {
                let visits = scene.visits(random, 60);
                keep(&store, visits).await;
            }
            20.. => {
                let receipts = scene.receipts(random, 12);
                keep_receipts(&store, receipts).await;
            }
            8..16 => {
                let mut visits = all_visits(&store).await;
                visits.shuffle(random);
                visits.truncate(random.random_range(1..40));
                reclassify(&store, verdicts(random, visits)).await;
            }
            16 | 17 => {
                let some: Vec<Code> = scene.codes.sample(random, 4).copied().collect();
                erase_visits(&store, &some, early(random)).await;
            }
            18 => {
                let id = *scene.campaigns.choose(random).expect("some");
                erase_campaign(&store, id, early(random)).await;
            }
            _ => scene.delete(random).await,
        }
        scene.check().await;
    }
    // Links lose their clicks one by one, then several at once, and get them back.
    for class in [Class::Scanner, Class::Human] {
        let visits = all_visits(&scene.fixture.store).await;
        let (first, others) = visits.split_at(40);
        for some in first.chunks(1).chain(others.chunks(20)) {
            let mut verdicts = verdicts(&mut StdRng::seed_from_u64(1), some.to_vec());
            for (_, verdict) in &mut verdicts {
                verdict.classification.class = class;
            }
            reclassify(&scene.fixture.store, verdicts).await;
        }
        scene.check().await;
        if class == Class::Scanner {
            assert_eq!(rows(&scene.fixture).await, 0);
        }
    }
}

async fn clicks_are_exact_while_several_store_correct_and_erase(fixture: Fixture) {
    let mut scene = Scene::new(fixture).await;
    let random = &mut StdRng::seed_from_u64(7);
    for round in 0..8 {
        let known = all_visits(&scene.fixture.store).await;
        let mut tasks = Vec::new();
        for lane in 0..8 {
            let store = Arc::clone(&scene.stores[lane % 2]);
            // Visits of one batch are stored by several, as after a crash.
            let batch = scene.visits(random, 120);
            let mut visits = known.clone();
            visits.shuffle(random);
            visits.truncate(60);
            let judged = verdicts(random, visits);
            let some: Vec<Code> = scene.codes.sample(random, 3).copied().collect();
            let until = early(random);
            let portions = if lane < 6 { 0 } else { 8 };
            let receipts: Vec<_> = (0..portions).map(|_| scene.receipts(random, 12)).collect();
            tasks.push(tokio::spawn(async move {
                match lane {
                    0..3 => _ = keep(&store, batch).await,
                    3 | 4 => reclassify(&store, judged).await,
                    5 if round % 2 == 1 => _ = erase_visits(&store, &some, until).await,
                    _ => {
                        for some in receipts {
                            keep_receipts(&store, some).await;
                        }
                    }
                }
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        scene.check().await;
    }
}

/// A store with the link `a` of a campaign.
async fn one_link(fixture: &Fixture) -> CampaignId {
    let id = fixture.store.create_campaign(&campaign()).await;
    let id = id.expect("room");
    let link = Link {
        destination: Destination::Campaign {
            id,
            values: ParameterValues::default(),
        },
        ..link("a")
    };
    create(&fixture.store, link).await;
    id
}

async fn an_earlier_visit_moves_the_first_click(fixture: Fixture) {
    let store = &*fixture.store;
    let id = one_link(&fixture).await;
    let all = async || {
        let it = clicks(store, &[code("a")]).await["a"];
        let hours = first_clicks(store, id).await;
        let hours: Vec<i64> = hours
            .into_iter()
            .map(|(hour, links)| {
                assert_eq!(links, 1);
                hour
            })
            .collect();
        assert_eq!(hours, [hour_of(it.first_at)]);
        (it.first_at.to_string(), it.last_at.to_string(), it.visits)
    };
    let mut sequence = 0;
    for (at, first, last) in [
        ("12:30:00", "12:30:00", "12:30:00"),
        ("12:10:00", "12:10:00", "12:30:00"),
        ("13:00:00", "12:10:00", "13:00:00"),
        ("11:59:59.999", "11:59:59.999", "13:00:00"),
    ] {
        keep(
            store,
            vec![visit(sequence, "a", &format!("2026-06-01T{at}Z"))],
        )
        .await;
        sequence += 1;
        let time = |text| format!("2026-06-01T{text}Z");
        assert_eq!(all().await, (time(first), time(last), sequence), "{at}");
    }
    assert_eq!(
        store.first_link_at(id).await.expect("a store"),
        Some(link("a").created_at)
    );
    assert_eq!(
        first_clicks(store, CampaignId::new(99).expect("an id")).await,
        BTreeMap::new()
    );
}

async fn retention_leaves_clicks_and_they_are_corrected_afterwards(fixture: Fixture) {
    let store = &*fixture.store;
    let id = one_link(&fixture).await;
    let times = ["2026-05-20T12:00:00Z", "2026-05-21T12:00:00Z", NOW];
    let visits = times.into_iter().zip(0..);
    keep(store, visits.map(|(at, n)| visit(n, "a", at)).collect()).await;
    match fixture.options.visits {
        // As its TTL does.
        Some(_) => {
            fixture.execute_in_clickhouse("ALTER TABLE visits DELETE WHERE at < '2026-05-25'");
        }
        None => {
            while store
                .forget_visits(moment("2026-05-25T00:00:00Z"), 100)
                .await
                .expect("a store")
                > 0
            {}
        }
    }
    assert_eq!(fixture.count("visits").await, 1);
    let before = LinkClicks {
        first_at: moment(times[0]),
        last_at: moment(NOW),
        visits: 3,
    };
    assert_eq!(clicks(store, &[code("a")]).await["a"], before);
    // The last visit was none of a person: the one before it is deleted, but counted.
    let mut judged = verdicts(&mut StdRng::seed_from_u64(1), all_visits(store).await);
    judged[0].1.classification.class = Class::Bot;
    reclassify(store, judged).await;
    let after = LinkClicks {
        last_at: moment(times[1]),
        visits: 2,
        ..before
    };
    assert_eq!(clicks(store, &[code("a")]).await["a"], after);
    // It was one after all.
    let mut judged = verdicts(&mut StdRng::seed_from_u64(1), all_visits(store).await);
    judged[0].1.classification.class = Class::Human;
    reclassify(store, judged).await;
    assert_eq!(clicks(store, &[code("a")]).await["a"], before);
    assert_eq!(
        first_clicks(store, id).await,
        [(hour_of(before.first_at), 1)].into()
    );
}

async fn a_deleted_link_stays_counted_in_its_campaign(fixture: Fixture) {
    let store = &*fixture.store;
    let id = one_link(&fixture).await;
    keep(
        store,
        vec![visit(0, "a", NOW), of_class(Class::Bot, visit(1, "a", NOW))],
    )
    .await;
    let deleted = store.delete_links(vec![(code("a"), 1)], moment(NOW)).await;
    assert_eq!(deleted.expect("a store"), 1);
    assert_eq!(rows(&fixture).await, 0);
    let counted = [(hour_of(moment(NOW)), 1)].into();
    assert_eq!(first_clicks(store, id).await, counted);
    // A correction of its visits brings nothing back.
    for class in [Class::Human, Class::Bot] {
        let mut judged = verdicts(&mut StdRng::seed_from_u64(1), all_visits(store).await);
        judged
            .iter_mut()
            .for_each(|it| it.1.classification.class = class);
        reclassify(store, judged).await;
        assert_eq!(rows(&fixture).await, 0);
        assert_eq!(first_clicks(store, id).await, counted);
    }
}

async fn clicks_of_stored_visits_are_counted_by_the_migration(fixture: Fixture) {
    let mut scene = Scene::new(fixture).await;
    let random = &mut StdRng::seed_from_u64(3);
    for _ in 0..3 {
        let visits = scene.visits(random, 100);
        keep(&scene.fixture.store, visits).await;
    }
    for _ in 0..5 {
        scene.delete(random).await;
    }
    scene.check().await;
    if scene.fixture.options.visits.is_some() {
        // As the version before left it.
        scene
            .fixture
            .execute_in_clickhouse("DROP TABLE link_clicks");
        scene
            .fixture
            .execute_in_clickhouse("ALTER TABLE visits_owner UPDATE version = 1 WHERE 1");
        let refused = scene.fixture.open().await.link_clicks(&scene.codes).await;
        let refused = refused.expect_err("tables of another version");
        let refused = refused.source.to_string();
        assert!(refused.contains("shortlink migrate"), "{refused}");
        let applied = crate::migrate(&scene.fixture.options, &KEY).await;
        assert_eq!(applied.expect("a good database"), 0);
        scene.fixture.store = scene.fixture.open().await;
        return scene.check().await;
    }
    let number = match Scheme::of(scene.fixture.options.url.expose_secret()).expect("a scheme") {
        Scheme::Sqlite => 27,
        Scheme::Postgres => 22,
    };
    let undone = format!(
        "DROP TABLE link_clicks; DROP TABLE campaign_clicks; \
         DELETE FROM _sqlx_migrations WHERE version = {number}"
    );
    scene.fixture.execute(&undone).await;
    let applied = crate::migrate(&scene.fixture.options, &KEY).await;
    assert_eq!(applied.expect("a good database"), 1);
    scene.check().await;
}

async fn clicked_messages_are_counted_by_the_migration(fixture: Fixture) {
    let mut scene = Scene::new(fixture).await;
    let random = &mut StdRng::seed_from_u64(4);
    let visits = scene.visits(random, 60);
    keep(&scene.fixture.store, visits).await;
    let receipts = scene.receipts(random, 60);
    keep_receipts(&scene.fixture.store, receipts).await;
    scene.check().await;
    let number = match Scheme::of(scene.fixture.options.url.expose_secret()).expect("a scheme") {
        Scheme::Sqlite => 45,
        Scheme::Postgres => 40,
    };
    let undone = format!(
        "ALTER TABLE receipt_counts DROP COLUMN clicked; \
         DELETE FROM _sqlx_migrations WHERE version = {number}"
    );
    scene.fixture.execute(&undone).await;
    let applied = crate::migrate(&scene.fixture.options, &KEY).await;
    assert_eq!(applied.expect("a good database"), 1);
    scene.check().await;
}

async fn links_are_listed_by_whether_they_were_clicked(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    let visits = (0..30).map(|sequence| random_visit(&scene.codes, sequence));
    keep(&scene.fixture.store, visits.collect()).await;
    let expected = scene.expected().await;
    assert!((4..LINKS - 4).contains(&expected.len()));
    let store = &scene.fixture.store;
    for campaign in [None, Some(scene.campaigns[0]), Some(scene.campaigns[1])] {
        for clicked in [true, false] {
            let listing = Listing {
                campaign,
                clicked: Some(clicked),
                limit: 1000,
                ..Listing::default()
            };
            assert!(listing.is_searched());
            let mut listed = codes(&store.list_links(&listing).await.expect("a store"));
            listed.sort();
            let all = scene.codes.iter().map(Code::to_string);
            let mut wanted: Vec<String> = all
                .filter(|it| campaign.is_none_or(|id| scene.campaign_of(it) == Some(id)))
                .filter(|it| expected.contains_key(it) == clicked)
                .collect();
            wanted.sort();
            assert_eq!(listed, wanted, "{campaign:?} {clicked}");
        }
    }
    // Page by page, each recipient once.
    let id = scene.campaigns[0];
    let (mut after, mut seen) = (None, BTreeMap::new());
    loop {
        let page = store
            .recipients(id, after.as_ref(), 4)
            .await
            .expect("a store");
        let Some(last) = page.last() else {
            break;
        };
        after = Some(shortlink_core::ports::Position {
            created_at: last.created_at,
            code: last.code,
        });
        for it in page {
            assert_eq!(it.clicks, expected.get(it.code.as_str()).copied());
            assert_eq!(it.created_by, "key");
            assert_eq!(seen.insert(it.code, it.external_id), None);
        }
    }
    assert_eq!(seen.len(), LINKS / 3);
}
