//! Bad news: passed on only while the data set is proved current.

use shortlink_resolver::{Source, Tracking};

use crate::world::{Campaign, LONGEST_AGE, Seen, World, settle};

/// The version in which the code 1 is unknown.
const UNKNOWN: u64 = 2;

/// A world in which the code 1 is unknown.
fn with_unknown() -> World {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    for _ in 0..UNKNOWN {
        world.redis.change(1);
    }
    world
}

/// Lets a second pass without a beat.
fn pass(world: &mut World) {
    world.ms += 1000;
    world.drive();
    world.redis.run(8);
    world.deliver(8, 0);
}

#[test]
fn bad_news_is_passed_on_while_beats_prove_the_data() {
    let mut world = with_unknown();
    world.greet();
    for source in [Source::Redis, Source::Redis, Source::Cache] {
        settle(&mut world, 1);
        assert_eq!(world.last, Some((Seen::Unknown, source)));
    }
    for _ in 0..3 {
        pass(&mut world);
        settle(&mut world, 1);
    }
    pass(&mut world);
    settle(&mut world, 1);
    // The entry itself is as fresh as before.
    assert_eq!(world.last, Some((Seen::Doubtful, Source::Cache)));
    world.prove();
    settle(&mut world, 1);
    assert_eq!(world.last, Some((Seen::Unknown, Source::Cache)));
}

#[test]
fn the_first_value_proves_nothing() {
    let mut world = with_unknown();
    world.redis.beat(0);
    world.drive();
    world.redis.run(3);
    world.deliver(3, 0);
    settle(&mut world, 1);
    assert_eq!(world.last, Some((Seen::Doubtful, Source::Redis)));
    // A redirect needs no proof.
    settle(&mut world, 0);
    assert_eq!(world.last, Some((Seen::Link(0), Source::Redis)));
}

#[test]
fn a_negative_record_ends_with_its_generation() {
    let mut world = with_unknown();
    world.greet();
    for _ in 0..3 {
        settle(&mut world, 1);
    }
    assert_eq!(world.last, Some((Seen::Unknown, Source::Cache)));
    world.redis.begin_generation(world.ms);
    world.prove();
    world.prove();
    settle(&mut world, 1);
    assert_eq!(world.last, Some((Seen::Doubtful, Source::Redis)));
    // Written again, it is of this data set.
    for _ in 0..3 {
        world.redis.change(1);
    }
    world.deliver(8, 0);
    settle(&mut world, 1);
    assert_eq!(world.last, Some((Seen::Unknown, Source::Redis)));
}

#[test]
fn a_campaign_s_bad_news_needs_a_proof_too() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    for _ in 0..3 {
        world.redis.change(7);
    }
    world.greet();
    let paused = Seen::Campaign(&Campaign::Paused);
    for _ in 0..3 {
        settle(&mut world, 3);
    }
    assert_eq!(world.last, Some((paused, Source::Cache)));
    for _ in 0..4 {
        pass(&mut world);
    }
    settle(&mut world, 3);
    assert_eq!(world.last, Some((Seen::Doubtful, Source::Cache)));
}

#[test]
fn a_stale_entry_is_doubtful_on_a_connection_that_is_not() {
    let mut world = with_unknown();
    world.greet();
    for _ in 0..3 {
        settle(&mut world, 1);
    }
    for _ in 0..LONGEST_AGE / 2000 {
        world.prove();
    }
    world.ask(1);
    world.drive();
    world.ms += 50;
    world.drive();
    assert_eq!(world.last, Some((Seen::Doubtful, Source::Stale)));
}
