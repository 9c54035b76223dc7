//! Reading the certificates of the short domains, and `shortlink_certificates`.

use std::collections::HashMap;
use std::io;

use resolver::vocabulary::domains::{DomainState, Domains};

use crate::directives::words::Set;
use crate::nginx::conf::Conf;
use crate::settings::certificates::{Certificates, ReadCertificates};
use crate::settings::{MainConf, Settings};

/// Reads the certificates of the domains if the table names their files. A missing one is logged
/// and left out: a new domain gets its first certificate only once it is served.
///
/// # Errors
/// When one is there and can't be used.
pub(crate) fn read(conf: &Conf, domains: &Domains) -> Result<Option<ReadCertificates>, String> {
    let Some((pattern, key_pattern)) = domains.certificates().map_err(|it| it.to_string())? else {
        return Ok(None);
    };
    let mut contexts = HashMap::new();
    let (mut first, mut first_state) = (None, None);
    for domain in domains.entries().iter().filter(|it| it.is_public()) {
        let name = domain.certificate_name();
        let (path, key_path) = (pattern.of(name), key_pattern.of(name));
        if !contexts.contains_key(name) {
            if let Some(missing) = missing([&path, &key_path]) {
                conf.warn(&format!(
                    "domain \"{}\" can't be served by TLS yet: there is no {missing}",
                    domain.name()
                ));
                continue;
            }
            let context = conf.new_ssl()?;
            if !context.certify(conf, &path, &key_path)? {
                return Err(format!(
                    "the certificate of domain \"{}\", {path} with the key {key_path}, can't be \
                     used (the line before has the reason)",
                    domain.name()
                ));
            }
            contexts.insert(name.to_owned(), context);
        }
        let is_active = domain.state() == DomainState::Active;
        if first.is_none() || (is_active && first_state != Some(DomainState::Active)) {
            first = Some((path, key_path));
            first_state = Some(domain.state());
        }
    }
    let certificates = Box::new(Certificates::new(domains.clone(), contexts));
    Ok(Some(ReadCertificates {
        certificates,
        first,
    }))
}

/// The first of the files that is not there.
fn missing(paths: [&str; 2]) -> Option<&str> {
    let is_missing = |path: &&str| {
        let error = std::fs::metadata(path).err();
        error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    paths.into_iter().find(is_missing)
}

/// `shortlink_certificates`: a server that shows each client the certificate of the domain it asks
/// for.
pub(crate) fn set(conf: &mut Conf) -> Set {
    let main = conf.main::<Settings>().ok_or("there is no http block")?;
    let own = conf.location::<Settings>().and_then(|level| level.table);
    let table = own.or(main.table);
    let read = table.and_then(|table| main.tables.get(table)?.certificates.as_ref());
    let (Some(table), Some(read)) = (table, read) else {
        return Err(
            "\"shortlink_certificates\" needs \"shortlink_domains\" before it, with the lines \
             \"certificate\" and \"certificate_key\""
                .to_owned(),
        );
    };
    let Some((file, key_file)) = read.first.clone() else {
        return Err(
            "no domain has a certificate: get the first one before TLS is switched on".to_owned(),
        );
    };
    let server = conf.ssl_server().ok_or("there is no server")?;
    if is_set(conf) {
        return Err("\"shortlink_certificates\" is given twice in this server".to_owned());
    }
    server.default_to(conf, &file, &key_file)?;
    if let Some(main) = conf.main_mut::<Settings>() {
        main.secured.push((server, table));
    }
    Ok(())
}

/// Returns whether the directive stands in a server, and the one that is read is in it.
pub(crate) fn is_set(conf: &Conf) -> bool {
    let server = conf.ssl_server().filter(|_| !conf.is_http_block());
    let secured = conf.main::<Settings>().map(|main| &main.secured);
    server
        .zip(secured)
        .is_some_and(|(server, secured)| secured.iter().any(|(it, _)| *it == server))
}

/// Has all servers with `shortlink_certificates` choose, once their contexts are there.
pub(crate) fn serve(main: &MainConf) {
    for (server, table) in &main.secured {
        let table = main.tables.get(*table);
        if let Some(read) = table.and_then(|table| table.certificates.as_ref()) {
            // SAFETY: the certificates are in the configuration as the server is.
            unsafe { server.choose_by(&*read.certificates) };
        }
    }
}
