//! Records of ended links leave Redis some days after the end; the answers stay as they were.

use std::ops::RangeInclusive;

use serde_json::{Value, json};
use shortlink_tests::calendar::{format_time, now};
use shortlink_tests::clock::Clock;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{SOON, until};

const TARGET: &str = "https://example.com/target";
const DAY: i64 = 86_400;
/// Two days, less what a busy machine takes.
const WHOLE: RangeInclusive<i64> = 2 * DAY - 120..=2 * DAY;
/// A record that is of use no more stays for five minutes.
const BRIEF: RangeInclusive<i64> = 1..=300;
const FOR_EVER: RangeInclusive<i64> = -1..=-1;

struct Scene {
    stack: Stack,
    clock: Clock,
}

impl Scene {
    fn start(database: Option<String>) -> Self {
        let mut stack = Stack::with(&StackOptions {
            sidecar: "ended_days = 2\n[upkeep]\nreconcile_per_s = 1000\nsweep_every_s = 1"
                .to_owned(),
            database,
            ..StackOptions::default()
        });
        let clock = Clock::new(stack.directory());
        // Not killed: its jobs would stay claimed for a minute.
        assert_eq!(stack.sidecar.stop(), Some(0));
        stack.sidecar.environment = clock.environment();
        stack.sidecar.start_again();
        Self { stack, clock }
    }

    fn change(&self, method: &str, path: &str, body: Option<&Value>) {
        let answer = self.stack.api(method, &format!("/v1/links/{path}"), body);
        assert_eq!(answer.status, 200, "{method} {path}");
    }

    /// A link that expires in some seconds, once a busy machine has made it.
    fn brief_link(&self) -> String {
        let body = json!({ "longUrl": TARGET, "validUntil": format_time(now() + 4) });
        text(&self.stack.create(&body), "shortCode")
    }

    fn redis(&self, command: &str, code: &str) -> String {
        self.stack
            .redis
            .command(&[command, &format!("sl:l:{code}")])
    }

    /// Seconds until Redis deletes the record of a code; -1 for never, -2 for a code without one.
    fn life(&self, code: &str) -> i64 {
        self.redis("TTL", code).parse().expect("seconds")
    }

    fn wait_for_life(&self, code: &str, lives: &RangeInclusive<i64>) {
        until(&format!("{code} lives for {lives:?}"), SOON, || {
            lives.contains(&self.life(code))
        });
    }

    fn assert_status(&self, code: &str, status: u16) {
        let answer = self.stack.follow(code);
        assert_eq!(
            answer.status,
            status,
            "{code}: {:?}",
            answer.header("X-Edge")
        );
    }

    /// Redis deletes the record, as it does when its time is up.
    fn leave(&self, code: &str) {
        self.redis("DEL", code);
        until("the record is gone for workers too", SOON, || {
            let answer = self.stack.follow(code);
            self.redis("DEL", code);
            assert_eq!(answer.status, 410, "{code}");
            answer.header("X-Edge") == Some("miss/fallback")
        });
    }
}

fn ended_links_leave(database: Option<String>) {
    let mut scene = Scene::start(database);
    let [live, paused, revoked] = [(); 3].map(|()| scene.stack.link(TARGET));
    let [expired, extended] = [(); 2].map(|()| scene.brief_link());
    scene.change("POST", &format!("{paused}/pause"), None);
    scene.change("DELETE", &revoked, None);
    assert!(
        WHOLE.contains(&scene.life(&revoked)),
        "{}",
        scene.life(&revoked)
    );
    for code in [&expired, &extended] {
        scene.wait_for_life(code, &WHOLE);
        assert_eq!(scene.redis("GET", code), "1 410 1");
    }
    let gone = [&paused, &revoked, &expired];
    for code in gone {
        scene.assert_status(code, 410);
    }
    for code in [&live, &paused] {
        assert_eq!(scene.life(code), -1, "{code}");
    }

    // A link that has not ended after all stays again.
    let later = json!({ "validUntil": "2100-01-01T00:00:00Z" });
    scene.change("PATCH", &extended, Some(&later));
    scene.change("POST", &format!("{paused}/resume"), None);
    for code in [&extended, &paused] {
        scene.wait_for_life(code, &FOR_EVER);
        until("it redirects again", SOON, || {
            scene.stack.follow(code).status == 302
        });
    }

    // Without its record the fallback answers, and Redis has it again for the rest of its time.
    for code in [&revoked, &expired] {
        scene.leave(code);
        scene.assert_status(code, 410);
        scene.wait_for_life(code, &WHOLE);
    }

    // Three days on the links need none. One stands there without an expiry, as those of earlier versions do.
    scene.redis("PERSIST", &revoked);
    scene.redis("PERSIST", &expired);
    scene.clock.set(3 * DAY);
    for code in [&revoked, &expired] {
        scene.wait_for_life(code, &BRIEF);
        scene.leave(code);
        scene.assert_status(code, 410);
        scene.wait_for_life(code, &BRIEF);
        assert!(scene.redis("GET", code).starts_with("1 410 "));
    }
    for code in [&live, &paused, &extended] {
        assert_eq!(scene.life(code), -1, "{code}");
    }

    // Nothing misses the records, or writes them again, but the fallback: what it has answered may be on its way.
    for code in [&revoked, &expired] {
        let mut gone = 0;
        until("the record stays away", SOON, || {
            gone = if scene.redis("DEL", code) == "0" {
                gone + 1
            } else {
                0
            };
            gone == 20
        });
    }
    scene.stack.sidecar.run_ok(&["audit"]);
    scene.stack.sidecar.run_ok(&["rebuild", "--restart"]);
    let [revoked_life, expired_life] = [&revoked, &expired].map(|code| scene.life(code));
    assert_eq!((revoked_life, expired_life), (-2, -2));
    scene.stack.redis.command(&["FLUSHALL"]);
    until(
        "a Redis that was emptied has the others again",
        SOON,
        || {
            [&live, &paused, &extended]
                .iter()
                .all(|code| scene.life(code) == -1)
        },
    );
    assert_eq!(scene.life(&expired), -2);
    // The log of changes still has the revocation, so that it is published again.
    scene.wait_for_life(&revoked, &BRIEF);

    // Nothing that knows better can be asked: that is no 404.
    scene.leave(&revoked);
    scene.leave(&expired);
    scene.stack.sidecar.kill();
    for code in [&revoked, &expired] {
        scene.redis("DEL", code);
        scene.assert_status(code, 503);
    }
    scene.assert_status(&live, 302);
}

#[test]
fn ended_links_leave_redis_and_stay_gone() {
    ended_links_leave(None);
}

#[test]
fn ended_links_of_postgres_leave_redis_and_stay_gone() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    ended_links_leave(Some(postgres.url()));
}
