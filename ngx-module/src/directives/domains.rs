//! `shortlink_domains`: the short domains and their states.

use std::fs::File;

use resolver::vocabulary::domains::Domains;

use crate::directives::certificates;
use crate::directives::words::Set;
use crate::nginx::conf::{Conf, Refused};
use crate::settings::{DomainTable, Settings};

/// `shortlink_domains`
pub(crate) fn set(conf: &mut Conf) -> Result<(), Refused> {
    let level = conf.location::<Settings>();
    if level.is_some_and(|level| level.table.is_some()) {
        return Err("\"shortlink_domains\" is given twice here"
            .to_owned()
            .into());
    }
    if certificates::is_set(conf) {
        return Err(
            "\"shortlink_domains\" must stand before \"shortlink_certificates\" of its server"
                .to_owned()
                .into(),
        );
    }
    let mut domains = Domains::default();
    conf.read_block(&mut domains, |conf, domains| add(conf, domains))?;
    domains.finish().map_err(|error| error.to_string())?;
    let certificates = certificates::read(conf, &domains)?;
    let is_in_http = conf.is_http_block();
    let Some(main) = conf.main_mut::<Settings>() else {
        return Ok(());
    };
    let table = main.tables.len();
    main.tables.push(DomainTable {
        domains,
        certificates,
    });
    if is_in_http {
        main.table = Some(table);
    }
    if let Some(level) = conf.location_mut::<Settings>() {
        level.table = Some(table);
    }
    Ok(())
}

/// Adds the line that is read; files have their whole paths.
fn add(conf: &Conf, domains: &mut Domains) -> Set {
    let words = conf.words();
    let mut line: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    if let ([b"certificate" | b"certificate_key", path], [_, whole]) = (&words[..], &mut line[..]) {
        *whole = conf.config_path(path)?.into_bytes();
    }
    for (word, parameter) in words.iter().zip(&mut line).skip(2) {
        for name in ["page", "logo"] {
            let value = word.strip_prefix(name.as_bytes());
            let file = value
                .and_then(|it| it.strip_prefix(b"="))
                .unwrap_or_default();
            if !file.is_empty() {
                let path = conf.config_path(file)?;
                let unreadable = |error| format!("{name} {path} can't be read: {error}");
                File::open(&path).map_err(unreadable)?;
                *parameter = [name.as_bytes(), b"=", path.as_bytes()].concat();
            }
        }
    }
    let line: Vec<&[u8]> = line.iter().map(|word| &word[..]).collect();
    let to_ascii = |name: &str| idna::domain_to_ascii(name).ok();
    let added = domains.add(&line, to_ascii);
    added.map_err(|error| error.to_string())
}
