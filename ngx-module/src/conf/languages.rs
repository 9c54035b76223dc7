//! `shortlink_languages`: the languages that there are pages in.

use std::ffi::{c_char, c_void};

use ngx::ffi::{ngx_command_t, ngx_conf_t};

use super::MainConf;
use super::words::{finish, shown, words};

/// The most characters of a language's name (RFC 5646, section 4.4.1).
const LONGEST: usize = 35;

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with this module's main configuration, and its words live as long
    // as that.
    unsafe {
        let main = &mut *conf.cast::<MainConf>();
        let set = if main.languages.is_empty() {
            read(&words(cf)[1..]).map(|languages| main.languages = languages)
        } else {
            Err("\"shortlink_languages\" is given twice".to_owned())
        };
        finish(cf, set)
    }
}

fn read<'a>(words: &[&'a [u8]]) -> Result<Vec<&'a [u8]>, String> {
    let mut languages: Vec<&[u8]> = Vec::with_capacity(words.len());
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
        languages.push(word);
    }
    Ok(languages)
}
