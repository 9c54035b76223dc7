//! `shortlink_visit_address`: the part of a client's address that a visit has.

use crate::directives::words::{Set, shown};
use crate::nginx::conf::Conf;
use crate::settings::{Settings, VisitAddress};

/// `shortlink_visit_address`
pub(crate) fn set(conf: &mut Conf) -> Set {
    let location = conf.location::<Settings>().ok_or("there is no location")?;
    if location.visit_address.is_some() {
        return Err("\"shortlink_visit_address\" is given twice here".to_owned());
    }
    let address = match conf.words()[1..] {
        [b"full"] => VisitAddress::Full,
        [b"truncated"] => VisitAddress::Truncated,
        ref words => {
            return Err(format!(
                "\"shortlink_visit_address\" is full or truncated, not \"{}\"",
                shown(&words.join(&b' '))
            ));
        }
    };
    if let Some(location) = conf.location_mut::<Settings>() {
        location.visit_address = Some(address);
    }
    Ok(())
}
