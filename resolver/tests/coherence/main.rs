//! The edge with a cache against a Redis that tracks the keys that its client has cached.
//!
//! Every change makes a key's version greater. Whatever happens in whatever order, an answer is
//! never older than what the wire had reported at the time of its request; one that is made of a
//! link's record and its campaign's, of neither.

mod authority;
mod campaigns;
mod world;

use proptest::prelude::*;
use shortlink_resolver::{LookUp, Source, Tracking};

use world::{CODES, KEYS, STALE_FOR, World, code, node, settle};

#[derive(Clone, Debug)]
enum Step {
    Ask(usize),
    /// A request for which everything arrives.
    Settle(usize),
    Change(usize),
    FlushAll,
    Run(usize),
    Deliver(usize, usize),
    Pass(u64),
    Disconnect,
    Beat,
    NewGeneration,
    /// A second in which everything arrives, with or without a beat.
    Second(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (0..CODES).prop_map(Step::Ask),
        8 => prop_oneof![Just(1), 0..CODES].prop_map(Step::Settle),
        4 => (0..KEYS).prop_map(Step::Change),
        3 => Just(Step::Change(1)),
        1 => Just(Step::FlushAll),
        8 => (1..4usize).prop_map(Step::Run),
        8 => ((1..4usize), (0..40usize)).prop_map(|(count, cut)| Step::Deliver(count, cut)),
        3 => (1..30u64).prop_map(Step::Pass),
        2 => (1000..8000u64).prop_map(Step::Pass),
        1 => Just(Step::Disconnect),
        2 => Just(Step::Beat),
        8 => prop::bool::weighted(0.7).prop_map(Step::Second),
        1 => Just(Step::NewGeneration),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_answer_is_older_than_what_was_told(
        steps in steps(),
        broadcast in any::<bool>(),
    ) {
        let tracking = if broadcast { Tracking::Broadcast } else { Tracking::OptIn };
        let mut world = World::new(tracking, 1 << 16);
        world.greet();
        for step in steps {
            match step {
                Step::Ask(number) => world.ask(number),
                Step::Settle(number) if world.connected => settle(&mut world, number),
                Step::Change(number) => world.redis.change(number),
                Step::FlushAll => world.redis.flush_all(),
                Step::Run(count) if world.connected => world.redis.run(count),
                Step::Deliver(count, cut) if world.connected => world.deliver(count, cut),
                Step::Pass(ms) => world.ms += ms,
                Step::Disconnect => world.disconnect(),
                Step::Beat => world.redis.beat(world.ms),
                Step::Second(beats) => {
                    if beats {
                        world.redis.beat(world.ms);
                    }
                    world.ms += 1000;
                    world.drive();
                    if world.connected {
                        world.redis.run(8);
                        world.deliver(8, 0);
                    }
                }
                Step::NewGeneration => world.redis.begin_generation(world.ms),
                _ => {}
            }
            world.drive();
        }
        world.disconnect();
        for request in 0..world.asked.len() {
            prop_assert_eq!(world.answered.get(&request), Some(&1), "request {}", request);
        }
    }
}

#[test]
fn a_code_is_kept_from_its_second_time_on_and_dropped_when_it_changes() {
    for tracking in [Tracking::OptIn, Tracking::Broadcast] {
        let mut world = World::new(tracking, 1 << 16);
        world.greet();
        settle(&mut world, 0);
        settle(&mut world, 0);
        assert_eq!(world.from_cache, 0);
        settle(&mut world, 0);
        assert_eq!(world.from_cache, 1);
        world.redis.change(0);
        world.deliver(1, 0);
        settle(&mut world, 0);
        assert_eq!(world.from_cache, 1, "it was dropped");
        settle(&mut world, 0);
        assert_eq!(world.from_cache, 2, "and is cached again");
        world.redis.flush_all();
        world.deliver(1, 0);
        assert_eq!(world.edge.cache().map(|cache| cache.len()), Some(0));
    }
}

#[test]
fn those_who_ask_at_once_share_one_look_up() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.greet();
    for _ in 0..100 {
        world.ask(0);
    }
    let asked = String::from_utf8(world.edge.output(node()).to_vec()).expect("text");
    assert_eq!(asked.matches("GET").count(), 1);
    world.drive();
    world.redis.run(1);
    world.deliver(1, 5);
    assert_eq!(world.answered.len(), 100);
}

#[test]
fn what_is_kept_is_served_for_a_while_without_redis_and_read_anew_with_it() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.greet();
    settle(&mut world, 0);
    settle(&mut world, 0);
    world.ms += 2_000;
    world.drive();
    // The heartbeat is not answered: Redis is given up.
    world.ms += 250;
    world.drive();
    assert!(world.lost_at.is_some());
    let lost_at = world.ms;
    world.redis.change(0);
    let source = |world: &mut World| {
        let now = world.now();
        match world.edge.look_up(&code(0), usize::MAX, now) {
            LookUp::Answered(_, source) => source,
            LookUp::Waiting(_) => Source::Redis,
            LookUp::NotKept => panic!("Redis may be asked"),
        }
    };
    assert_eq!(source(&mut world), Source::Stale);
    world.ms = lost_at + STALE_FOR - 1;
    assert_eq!(source(&mut world), Source::Stale);
    world.ms = lost_at + STALE_FOR;
    assert_eq!(source(&mut world), Source::None);
}

#[test]
fn nothing_is_kept_for_longer_than_its_age() {
    let mut world = World::new(Tracking::OptIn, 1 << 16);
    world.greet();
    settle(&mut world, 0);
    settle(&mut world, 0);
    for _ in 0..58 {
        world.ms += 1_000;
        world.drive();
        world.redis.run(8);
        world.deliver(8, 0);
    }
    settle(&mut world, 0);
    assert_eq!(world.from_cache, 1);
    for _ in 0..3 {
        world.ms += 1_000;
        world.drive();
        world.redis.run(8);
        world.deliver(8, 0);
    }
    settle(&mut world, 0);
    assert_eq!(world.from_cache, 1, "it is asked for again");
}
