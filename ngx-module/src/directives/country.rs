//! `shortlink_country`: the variables with the country and the region of a visitor.

use crate::directives::words::{Set, read_variable};
use crate::nginx::conf::Conf;
use crate::settings::Settings;

/// `shortlink_country`
pub(crate) fn set(conf: &mut Conf) -> Set {
    let main = conf.main::<Settings>().ok_or("there is no http block")?;
    if main.country[0].is_some() {
        return Err("\"shortlink_country\" is given twice".to_owned());
    }
    let words = conf.words();
    let country = read_variable(conf, "shortlink_country ", words[1])?;
    let region = words
        .get(2)
        .map(|word| read_variable(conf, "shortlink_country ", word));
    let region = region.transpose()?;
    if let Some(main) = conf.main_mut::<Settings>() {
        main.country = [Some(country), region];
    }
    Ok(())
}
