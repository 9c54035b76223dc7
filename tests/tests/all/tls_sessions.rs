//! Sessions that visitors resume: after a reload, on another machine, while the keys of tickets are replaced.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use shortlink_tests::nginx::{Nginx, NginxOptions};
use shortlink_tests::stack::directory;
use shortlink_tests::tls::Client;
use shortlink_tests::{ports, tls};

use super::domains_tls::{make_certificate, set_domains, turn_on_tls};

/// An answer without a body, for which nginx needs neither Redis nor a sidecar.
const PATH: &str = "/apple-touch-icon-precomposed.png";

/// nginx on a machine of its own: the certificates of its domains are on no other.
fn machine(prefix: &Path) -> Nginx {
    let ports = (ports::free(), ports::free());
    let nginx = Nginx::prepare(prefix, ports, 9, 9, &NginxOptions::default());
    for name in ["a.example", "b.example"] {
        make_certificate(&nginx.file("live"), &[name], 90);
    }
    set_domains(&nginx, "a.example active;\nb.example serving;");
    turn_on_tls(&nginx);
    nginx
}

/// The same with the files that several machines share, as the book describes them.
fn sharing_machine(prefix: &Path, shared: &Path) -> Nginx {
    let nginx = machine(prefix);
    let file = |name: &str| shared.join(name).display().to_string();
    let lines = format!(
        "ssl_conf_command NumTickets 1;
         ssl_session_ticket_key {};
         ssl_session_ticket_key {};
         ssl_session_ticket_key {};
         ssl_certificate {};
         ssl_certificate_key {};",
        file("current"),
        file("next"),
        file("previous"),
        file("nameless/fullchain.pem"),
        file("nameless/privkey.pem"),
    );
    fs::write(nginx.file("tls-sessions.conf"), lines).expect("a configuration");
    nginx
}

fn make_key(directory: &Path, name: &str) {
    let mut key = [0; 80];
    let mut random = File::open("/dev/urandom").expect("random bytes");
    random.read_exact(&mut key).expect("random bytes");
    fs::write(directory.join(name), key).expect("a key");
}

/// Makes what a machine shares with others.
fn share(directory: &Path) {
    for name in ["current", "next", "previous"] {
        make_key(directory, name);
    }
    make_certificate(directory, &["nameless"], 3650);
}

/// Replaces the keys: new tickets get the key that all machines already know as the next one.
fn rotate(directory: &Path) {
    for (from, to) in [("current", "previous"), ("next", "current")] {
        fs::rename(directory.join(from), directory.join(to)).expect("a key");
    }
    make_key(directory, "next");
}

/// A client of `a.example` that trusts the certificates of these machines.
struct Visitor(Client);

impl Visitor {
    fn of(machines: &[&Nginx], version: &'static SupportedProtocolVersion) -> Self {
        let files: Vec<_> = machines
            .iter()
            .map(|nginx| nginx.file("live/a.example/fullchain.pem"))
            .collect();
        let files: Vec<&Path> = files.iter().map(|file| &**file).collect();
        Self(tls::Client::new(&files, version))
    }

    /// Visits a machine and returns whether that resumed a session.
    fn resumes(&self, nginx: &Nginx) -> bool {
        let visit = self.0.get(nginx.tls_port, "a.example", PATH);
        assert!(visit.head.starts_with("http/1.1 204 "), "{}", visit.head);
        visit.is_resumed
    }
}

#[test]
fn sessions_outlive_reloads_renewals_and_swaps_and_work_on_another_machine() {
    let place = directory();
    let shared = place.path().join("shared");
    fs::create_dir(&shared).expect("a directory");
    share(&shared);
    let machines = ["one", "other"].map(|name| {
        let mut nginx = sharing_machine(&place.path().join(name), &shared);
        nginx.start_again();
        nginx
    });
    let [one, other] = &machines;
    let visitors = [&TLS12, &TLS13].map(|version| Visitor::of(&[one, other], version));
    for visitor in &visitors {
        assert!(!visitor.resumes(one));
        assert!(visitor.resumes(one));
        assert!(visitor.resumes(other));
    }
    one.reload();
    assert!(visitors.iter().all(|it| it.resumes(one)));
    make_certificate(&one.file("live"), &["a.example"], 90);
    set_domains(one, "b.example active;\na.example serving;");
    one.reload();
    assert!(visitors.iter().all(|it| it.resumes(one)));
    for nginx in &machines {
        assert_eq!(nginx.complaints(&["Redis"]), [""; 0]);
    }
}

#[test]
fn keys_of_tickets_are_replaced_one_machine_after_the_other() {
    let place = directory();
    // A copy of the keys for each machine, which get them one after the other.
    let copies = ["one", "other"].map(|name| {
        let copy = place.path().join(name).join("shared");
        fs::create_dir_all(&copy).expect("a directory");
        copy
    });
    let [of_one, of_other] = &copies;
    let copy = || {
        for name in ["current", "next", "previous"] {
            fs::copy(of_one.join(name), of_other.join(name)).expect("a key");
        }
    };
    share(of_one);
    let nameless = of_other.join("nameless");
    fs::create_dir(&nameless).expect("a directory");
    for file in ["fullchain.pem", "privkey.pem"] {
        let original = of_one.join("nameless").join(file);
        fs::copy(original, nameless.join(file)).expect("a certificate");
    }
    copy();
    let machines = copies.each_ref().map(|keys| {
        let prefix = keys.parent().expect("a machine");
        let mut nginx = sharing_machine(prefix, keys);
        nginx.start_again();
        nginx
    });
    let [one, other] = &machines;
    for version in [&TLS12, &TLS13] {
        let [visitor, absent] = [(); 2].map(|()| Visitor::of(&[one, other], version));
        assert!(!visitor.resumes(one) && !absent.resumes(one));
        for _ in 0..2 {
            rotate(of_one);
            one.reload();
            // Each knows the key of the other.
            assert!(visitor.resumes(other), "with a ticket from before");
            assert!(visitor.resumes(one), "with a ticket of the old key");
            assert!(visitor.resumes(other), "with a ticket of the new key");
            copy();
            other.reload();
            assert!(visitor.resumes(other));
        }
        // A ticket whose key is gone is worth nothing.
        assert!(!absent.resumes(other));
        assert!(absent.resumes(one));
    }
}

#[test]
fn a_single_machine_resumes_sessions_of_tls_1_2() {
    let place = directory();
    let mut nginx = machine(place.path());
    nginx.start_again();
    for (version, has_tickets) in [(&TLS12, true), (&TLS13, false)] {
        let visitor = Visitor::of(&[&nginx], version);
        assert!(!visitor.resumes(&nginx));
        assert_eq!(visitor.resumes(&nginx), has_tickets, "{version:?}");
    }
}
