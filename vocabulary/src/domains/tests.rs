use std::string::ToString;
use std::vec;

use super::*;

fn table(lines: &[&str]) -> Result<Domains, DomainError> {
    let mut domains = Domains::default();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        domains.add(&words, |name| {
            (name == "短.example").then(|| "xn--s7y.example".to_owned())
        })?;
    }
    domains.finish()?;
    Ok(domains)
}

fn state(domains: &Domains, host: &str) -> Option<DomainState> {
    domains.find(host.as_bytes()).map(Domain::state)
}

#[test]
fn active_names_make_bases_and_all_are_known() {
    let domains = table(&[
        "old.example.com retired",
        "b.example.com serving scheme=http",
        "A.example.com active port=8443",
        "c.example.com active weight=3",
        "d.example.com active campaign=k1",
        "e.example.com active key=crm-2 weight=1000",
    ])
    .expect("a table");
    let bases = "https://a.example.com:8443,https://c.example.com weight=3,\
                 https://d.example.com campaign=k1,https://e.example.com weight=1000 key=crm-2";
    assert_eq!(domains.bases(), bases);
    assert_eq!(
        domains.names(),
        "old.example.com,b.example.com,a.example.com,c.example.com,d.example.com,e.example.com"
    );
    assert_eq!(domains.states(), "rsaaaa");
    let names = domains.entries().iter().map(Domain::state);
    let read = domains.states().chars().filter_map(DomainState::by_letter);
    assert!(read.eq(names));
    assert_eq!(DomainState::by_letter('x'), None);
    assert_eq!(state(&domains, "a.example.com"), Some(DomainState::Active));
    assert_eq!(state(&domains, "b.example.com"), Some(DomainState::Serving));
    assert_eq!(
        state(&domains, "old.example.com"),
        Some(DomainState::Retired)
    );
    assert_eq!(state(&domains, "example.com"), None);
    assert_eq!(state(&domains, ""), None);
    let active = domains.entries().iter().map(Domain::base);
    let active: Vec<Base> = active.skip(2).cloned().collect();
    assert_eq!(Base::parse_all(bases).collect::<Vec<_>>(), active);
}

#[test]
fn bases_that_are_not_understood_are_left_away() {
    for wrong in [
        "",
        "https://a.example weight=0",
        "https://a.example weight=1001",
        "https://a.example campaign=0",
        "https://a.example key=",
        "https://a.example key=a%b",
        "https://a.example colour=red",
        "https://a.example colour",
    ] {
        let text = [wrong, "https://b.example"].join(", ");
        let last = Base::parse_all(&text).last();
        assert_eq!(last.expect("a base").url, "https://b.example", "{wrong}");
        assert_eq!(Base::parse_all(wrong).next(), None, "{wrong}");
    }
}

#[test]
fn what_is_below_a_wildcard_is_found_and_whole_names_come_first() {
    let domains = table(&[
        "s.example.com active",
        "*.example.com serving",
        "*.old.example.com retired",
        "new.old.example.com serving",
    ])
    .expect("a table");
    let [serving, retired] = [DomainState::Serving, DomainState::Retired].map(Some);
    assert_eq!(state(&domains, "s.example.com"), Some(DomainState::Active));
    assert_eq!(state(&domains, "a.example.com"), serving);
    assert_eq!(state(&domains, "a.b.example.com"), serving);
    assert_eq!(state(&domains, "old.example.com"), serving);
    assert_eq!(state(&domains, "x.old.example.com"), retired);
    assert_eq!(state(&domains, "new.old.example.com"), serving);
    assert_eq!(state(&domains, "example.com"), None);
    assert_eq!(state(&domains, ".example.com"), None);
    assert_eq!(state(&domains, "*.example.com"), serving);
    assert_eq!(state(&domains, "badexample.com"), None);
}

#[test]
fn a_domain_may_say_what_it_answers_when_it_is_retired() {
    let domains = table(&[
        "a.example active target=https://www.example/?from=short",
        "b.example retired page=pages/gone.html",
        "c.example retired",
    ])
    .expect("a table");
    let retirement = |host: &str| domains.find(host.as_bytes())?.retirement().cloned();
    assert_eq!(
        retirement("a.example"),
        Some(Retirement::Target(
            "https://www.example/?from=short".to_owned()
        ))
    );
    assert_eq!(
        retirement("b.example"),
        Some(Retirement::Page("pages/gone.html".to_owned()))
    );
    assert_eq!(retirement("c.example"), None);
}

#[test]
fn certificates_are_filed_by_name() {
    let domains = table(&[
        "certificate /live/*/fullchain.pem",
        "certificate_key /live/*/privkey.pem",
        "a.example active",
        "*.b.example serving",
        "c.example serving certificate=a.example",
    ])
    .expect("a table");
    let (certificate, key) = domains.certificates().expect("both").expect("some");
    assert_eq!(certificate.of("a.example"), "/live/a.example/fullchain.pem");
    assert_eq!(key.of("a.example"), "/live/a.example/privkey.pem");
    let names = domains.entries().iter().map(Domain::certificate_name);
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["a.example", "b.example", "a.example"]
    );
    let lines = ["certificate /live/*.pem", "a.example active"];
    let one = table(&lines).expect("a table");
    let error = DomainError::Certificate("certificate".to_owned());
    assert_eq!(one.certificates(), Err(error));
    for wrong in [
        "certificate /live/fullchain.pem",
        "certificate",
        "certificate_key a* b*",
    ] {
        let error = DomainError::Certificate(wrong.to_owned());
        assert_eq!(table(&[wrong]).unwrap_err(), error);
    }
    let twice = ["certificate a*", "certificate b*"];
    let error = DomainError::Certificate("certificate b*".to_owned());
    assert_eq!(table(&twice).unwrap_err(), error);
}

#[test]
fn wrong_tables_are_refused() {
    for wrong in [
        "",
        "https://a.example",
        "a.example/x",
        "a.example:80",
        "a..b",
        "-a",
        "é.cn",
        "*a",
        "a.*.b",
        "*.",
        "*",
    ] {
        let error = DomainError::Name(wrong.to_owned());
        let line = [wrong, " serving"].concat();
        assert_eq!(table(&[&line]).unwrap_err(), error);
    }
    assert_eq!(table(&[]).unwrap_err(), DomainError::NoneActive);
    for lines in [
        vec!["a.b serving"],
        vec!["a.b active campaign=1", "b.b active key=k"],
    ] {
        assert_eq!(table(&lines).unwrap_err(), DomainError::NoneActive);
    }
    let error = DomainError::State("on".to_owned());
    assert_eq!(table(&["a.b on"]).unwrap_err(), error);
    let error = DomainError::NoState("a.b".to_owned());
    assert_eq!(table(&["a.b"]).unwrap_err(), error);
    let error = DomainError::Twice("a.b".to_owned());
    assert_eq!(table(&["a.b active", "A.B serving"]).unwrap_err(), error);
    let error = DomainError::ActiveWildcard("*.a.b".to_owned());
    assert_eq!(table(&["*.a.b active"]).unwrap_err(), error);
    for parameter in [
        "port=0",
        "port=65536",
        "port=",
        "port=08",
        "scheme=ftp",
        "weight=0",
        "weight=1001",
        "weight=1.5",
        "campaign=0",
        "key=a,b",
        "target=/x",
        "unknown=",
        "unknown=/x",
        "unknown=ftp://a.b/",
        "home=/x",
        "brand=",
        "logo=a.svg",
        "page=",
        "certificate=../x",
        "certificate=*.x",
        "colour=red",
        "colour",
    ] {
        let error = DomainError::Parameter(parameter.to_owned());
        let line = ["a.b active ", parameter].concat();
        assert_eq!(table(&[&line]).unwrap_err(), error);
        assert!(error.to_string().contains(parameter));
    }
    for (parameters, second) in [
        ("port=1 port=2", "port=2"),
        ("campaign=1 key=k", "key=k"),
        ("target=http://a.b/ page=p", "page=p"),
        ("home=http://a.b/ home=http://c.d/", "home=http://c.d/"),
        ("brand=off brand=off", "brand=off"),
        (
            "unknown=http://a.b/ unknown=http://a.b/",
            "unknown=http://a.b/",
        ),
    ] {
        let error = DomainError::Conflict(second.to_owned());
        let line = ["a.b active ", parameters].concat();
        assert_eq!(table(&[&line]).unwrap_err(), error);
    }
}

#[test]
fn the_first_brand_is_that_of_domains_that_name_none() {
    let domains = table(&[
        "brand Acme logo=/p/acme.SVG imprint=https://a.b/imprint site=https://a.b/",
        "brand Ärger",
        "a.b active",
        "b.b serving brand=Ärger",
        "*.c.b serving brand=Acme",
        "d.b retired brand=off",
    ])
    .expect("a table");
    let brand = |host: &str| domains.brand_of(domains.find(host.as_bytes())?);
    for host in ["a.b", "x.c.b"] {
        let brand = brand(host).expect("a brand");
        assert_eq!(brand.name(), "Acme");
        assert_eq!(brand.logo(), Some("/p/acme.SVG"));
        assert_eq!(brand.imprint(), Some("https://a.b/imprint"));
        assert_eq!(brand.site(), Some("https://a.b/"));
    }
    let plain = brand("b.b").expect("a brand");
    assert_eq!(
        (plain.name(), plain.logo(), plain.imprint(), plain.site()),
        ("Ärger", None, None, None)
    );
    assert_eq!(brand("d.b"), None);
    assert_eq!(domains.announced_brands(), "Acme,%c3%84rger,Acme,-");
    let none = table(&["a.b active"]).expect("a table");
    assert_eq!(none.brand_of(&none.entries()[0]), None);
}

#[test]
fn wrong_brands_are_refused() {
    let long = "ä".repeat(80);
    assert!(table(&[&["brand ", &long].concat(), "a.b active"]).is_ok());
    for wrong in [
        "brand",
        "brand ",
        "brand off",
        "brand logo=a.svg",
        "brand a\tb",
        "brand a\u{202e}b",
        &["brand ä", &long].concat(),
        "brand A logo=a.exe",
        "brand A logo=",
        "brand A imprint=a.b/imprint",
        "brand A imprint=javascript:alert(1)",
        "brand A site=ftp://a.b/",
        "brand A site=https://a.b/ site=https://a.b/",
        "brand A colour=red",
        "brand A B",
    ] {
        let error = DomainError::Brand(wrong.to_owned());
        assert_eq!(table(&[wrong]).unwrap_err(), error);
        assert!(error.to_string().contains(".svg"));
    }
    let error = DomainError::BrandTwice("A".to_owned());
    assert_eq!(table(&["brand A", "brand A"]).unwrap_err(), error);
    let error = DomainError::UnknownBrand("A".to_owned());
    let lines = ["a.b active brand=A", "brand A"];
    assert_eq!(table(&lines).unwrap_err(), error);
    assert!(error.to_string().contains("above"));
}

#[test]
fn visitors_without_a_code_have_a_target_while_the_domain_follows_links() {
    let domains = table(&[
        "a.b active home=https://www.a.b/",
        "*.c.d serving home=https://www.a.b/",
        "e.f retired home=https://www.a.b/",
    ]);
    let domains = domains.expect("a table");
    let targets = domains.entries().iter().map(Domain::home_target);
    let target = Some("https://www.a.b/");
    assert_eq!(targets.collect::<Vec<_>>(), [target, target, None]);
}

#[test]
fn unknown_codes_have_a_target_while_the_domain_follows_links() {
    let lines = ["a.b active", "c.d serving", "e.f retired", "*.g.h serving"];
    let lines = lines.map(|line| [line, " unknown=https://www.a.b/ port=81"].concat());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let domains = table(&lines).expect("a table");
    for (host, target, base) in [
        ("a.b", Some("https://www.a.b/"), "https://a.b:81"),
        ("c.d", Some("https://www.a.b/"), "https://c.d:81"),
        ("e.f", None, "https://e.f:81"),
        ("x.y.g.h", Some("https://www.a.b/"), "https://x.y.g.h:81"),
    ] {
        let domain = domains.find(host.as_bytes()).expect("a domain");
        assert_eq!(domain.unknown_target(), target, "{host}");
        assert_eq!(domain.base_of(host.as_bytes()), base.as_bytes());
    }
}

#[test]
fn names_in_unicode_are_asked_for_in_ascii() {
    let domains = table(&["短.example active", "*.短.example serving"]).expect("a table");
    assert_eq!(domains.names(), "xn--s7y.example,*.xn--s7y.example");
    assert_eq!(
        state(&domains, "a.xn--s7y.example"),
        Some(DomainState::Serving)
    );
}

#[test]
fn addresses_are_names_too() {
    let domains = table(&["127.0.0.1 active", "[::1] serving", "a.example serving"]);
    let domains = domains.expect("a table");
    assert_eq!(state(&domains, "[::1]"), Some(DomainState::Serving));
    let public = domains.entries().iter().map(Domain::is_public);
    assert_eq!(public.collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn announced_brands_are_read_as_they_were() {
    let domains = table(&[
        "a.b active",
        "brand Acme",
        "brand -",
        "b.b active",
        "c.b active brand=off",
        "d.b active brand=off",
        "e.b active brand=-",
        "f.b active",
    ])
    .expect("a table");
    let text = domains.announced_brands();
    assert_eq!(text, "Acme,,-,,%2d,Acme");
    let read: Vec<Option<String>> = announced_brands(text).collect();
    let brands = domains.entries().iter();
    let brands: Vec<Option<String>> = brands
        .map(|it| Some(domains.brand_of(it)?.name().to_owned()))
        .collect();
    assert_eq!(read, brands);
    let broken: Vec<Option<String>> = announced_brands("%C,,A%20b,%ff").collect();
    assert_eq!(broken, [None, None, Some("A b".to_owned()), None]);
}
