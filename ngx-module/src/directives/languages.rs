//! `shortlink_languages`: the languages that have pages.

use crate::directives::words::{Set, shown};
use crate::nginx::conf::Conf;
use crate::settings::Settings;

/// The most characters of a language's name (RFC 5646, section 4.4.1).
const LONGEST: usize = 35;

/// `shortlink_languages`
pub(crate) fn set(conf: &mut Conf) -> Set {
    let main = conf.main::<Settings>().ok_or("there is no http block")?;
    if !main.languages.is_empty() {
        return Err("\"shortlink_languages\" is given twice".to_owned());
    }
    let languages = read(&conf.words()[1..])?;
    if let Some(main) = conf.main_mut::<Settings>() {
        main.languages = languages;
    }
    Ok(())
}

fn read(words: &[&[u8]]) -> Result<Vec<Box<[u8]>>, String> {
    let mut languages: Vec<Box<[u8]>> = Vec::with_capacity(words.len());
    for word in words {
        let is_name = (1..=LONGEST).contains(&word.len())
            && word
                .split(|&byte| byte == b'-')
                .all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_alphanumeric));
        if !is_name {
            return Err(format!(
                "\"{}\" is not a language such as en, zh-Hant or pt-BR",
                shown(word)
            ));
        }
        if languages.iter().any(|it| it.eq_ignore_ascii_case(word)) {
            return Err(format!("language \"{}\" is given twice", shown(word)));
        }
        languages.push((*word).into());
    }
    Ok(languages)
}
