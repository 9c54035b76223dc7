//! Links of campaigns, and what begins and ends by the clock.

use shortlink_resolver::{ConnectionError, Source, Tracking};

use crate::world::{Campaign, STALE_FOR, Seen, World, campaign_in, node, settle};

/// A world whose cache holds a link of a campaign, and the campaign.
fn kept_link(tracking: Tracking) -> World {
    let mut world = World::new(tracking, 1 << 16);
    world.greet();
    settle(&mut world, 3);
    settle(&mut world, 3);
    settle(&mut world, 3);
    assert_eq!(world.last, Some((Seen::OfCampaign(0, 0), Source::Cache)));
    // The link was not kept the first time; the campaign was.
    assert_eq!(world.redis.gets, [3, 7, 3]);
    world.redis.gets.clear();
    world
}

#[test]
fn a_change_of_a_campaign_is_seen_by_its_cached_links_which_are_not_read_again() {
    for tracking in [Tracking::OptIn, Tracking::Broadcast] {
        let mut world = kept_link(tracking);
        for version in 1..=6 {
            world.redis.change(7);
            world.deliver(1, 0);
            settle(&mut world, 3);
            let seen = match campaign_in(version) {
                Campaign::Live => Seen::OfCampaign(0, version),
                Campaign::Paused => Seen::Campaign(&Campaign::Paused),
                Campaign::Absent => Seen::Campaign(&Campaign::Absent),
            };
            assert_eq!(world.last, Some((seen, Source::Redis)));
            assert_eq!(world.redis.gets, [7]);
            settle(&mut world, 3);
            assert_eq!(world.last, Some((seen, Source::Cache)));
            assert_eq!(world.redis.gets, [7]);
            world.redis.gets.clear();
        }
        world.redis.change(3);
        world.deliver(1, 0);
        settle(&mut world, 3);
        assert_eq!(world.last, Some((Seen::OfCampaign(1, 6), Source::Redis)));
        assert_eq!(world.redis.gets, [3]);
    }
}

#[test]
fn however_many_links_wait_for_a_campaign_it_is_asked_for_once() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.greet();
    for _ in 0..50 {
        world.ask(3);
        world.ask(5);
    }
    world.drive();
    world.redis.run(2);
    world.deliver(2, 7);
    world.drive();
    // The links are known now; each visitor requests them again, and the campaign with them.
    world.ask(3);
    world.drive();
    assert!(world.answered.is_empty());
    world.redis.run(8);
    world.deliver(8, 3);
    world.drive();
    assert_eq!(world.answered.len(), 101);
    assert_eq!(world.redis.gets, [3, 5, 7, 3]);
}

#[test]
fn the_budget_covers_the_link_and_its_campaign() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.greet();
    world.ask(3);
    world.drive();
    world.ms += 40;
    world.redis.run(1);
    world.deliver(1, 0);
    world.drive();
    assert_eq!(world.edge.next_deadline(), world.ms + 10);
    world.ms += 10;
    world.drive();
    assert_eq!(world.last, Some((Seen::Nothing, Source::None)));
    // A later reply is cached for others.
    world.redis.run(4);
    world.deliver(4, 0);
    settle(&mut world, 3);
    assert_eq!(world.redis.gets, [3, 7, 3]);
}

#[test]
fn a_link_and_its_campaign_are_served_for_a_while_without_redis() {
    let mut world = kept_link(Tracking::OptIn);
    world.disconnect();
    let lost_at = world.ms;
    // As after an attempt that has failed.
    let now = world.now();
    world.edge.connecting(node(), now);
    world.edge.disconnected(node(), &ConnectionError::Lost, now);
    for (ms, expected) in [
        (0, (Seen::OfCampaign(0, 0), Source::Stale)),
        (STALE_FOR - 1, (Seen::OfCampaign(0, 0), Source::Stale)),
        (STALE_FOR, (Seen::Nothing, Source::None)),
    ] {
        world.ms = lost_at + ms;
        world.ask(3);
        assert_eq!(world.last, Some(expected));
    }
}

#[test]
fn a_campaign_that_is_late_is_served_as_it_was() {
    let mut world = kept_link(Tracking::OptIn);
    // Another link of the campaign, which is not kept, after coherence was lost.
    world.disconnect();
    world.ms += 60;
    world.greet();
    world.ask(5);
    world.drive();
    world.redis.run(1);
    world.deliver(1, 0);
    world.drive();
    world.ms += 50;
    world.drive();
    assert_eq!(world.last, Some((Seen::OfCampaign(0, 0), Source::Stale)));
}

#[test]
fn what_is_early_becomes_live_by_the_clock_alone_and_is_over_in_time() {
    for early in [3, 7, 0] {
        let mut world = World::new(Tracking::OptIn, 1 << 16);
        world.greet();
        let (record, number) = match early {
            3 => ("1 C7 1 1010-1020 5", 3),
            7 => ("1 302 1 1010-1020 https://e/{0}/6", 3),
            _ => ("1 302 1 1010-1020 https://e/5", 0),
        };
        world.redis.others.insert(early, record.to_owned());
        for _ in 0..4 {
            settle(&mut world, number);
            assert_eq!(world.last.take().map(|(seen, _)| seen), Some(Seen::Unknown));
        }
        assert!(world.redis.gets.len() <= 3, "it is cached");
        world.unix = 1009;
        settle(&mut world, number);
        assert_eq!(world.last, Some((Seen::Unknown, Source::Cache)));
        world.unix = 1010;
        let live = match early {
            3 => Seen::OfCampaign(5, 0),
            7 => Seen::OfCampaign(0, 6),
            _ => Seen::Link(5),
        };
        for source in [Source::Redis, Source::Cache] {
            settle(&mut world, number);
            assert_eq!(world.last, Some((live, source)));
        }
        world.unix = 1019;
        settle(&mut world, number);
        assert_eq!(world.last, Some((live, Source::Cache)));
        world.unix = 1020;
        settle(&mut world, number);
        let gone = Seen::Campaign(&Campaign::Paused);
        assert_eq!(world.last, Some((gone, Source::Cache)));
    }
}

#[test]
fn a_parameter_that_the_link_has_not_makes_a_miss() {
    let mut world = kept_link(Tracking::OptIn);
    world
        .redis
        .others
        .insert(7, "1 302 1 0 https://e/{1}/1".to_owned());
    world.redis.change(7);
    world.deliver(1, 0);
    for source in [Source::Redis, Source::Cache] {
        settle(&mut world, 3);
        let missed = Seen::Campaign(&Campaign::Absent);
        assert_eq!(world.last, Some((missed, source)));
    }
}
