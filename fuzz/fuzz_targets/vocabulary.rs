//! Every reader of a stored or sent format takes any bytes; what it accepts it writes back the
//! same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shortlink_vocabulary::target::is_servable;
use shortlink_vocabulary::visit::VisitFrames;
use shortlink_vocabulary::{CheckKeys, Code, KeyPrefix, Record};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::parse(bytes) {
        assert_eq!(record.to_vec(), bytes);
        if let Record::Link(link) = record
            && is_servable(link.target)
        {
            assert!(link.target.iter().all(u8::is_ascii_graphic));
        }
    }
    for visit in VisitFrames::new(bytes).flatten() {
        let mut batch = Vec::new();
        visit.write(&mut batch);
        // Texts may have been cut, so a second round must change nothing more.
        let cut = VisitFrames::new(&batch).next().expect("a frame").expect("a visit");
        let mut again = Vec::new();
        cut.write(&mut again);
        assert_eq!(again, batch);
    }
    if let Ok(code) = Code::parse(bytes) {
        assert_eq!(code.as_bytes(), bytes);
        let keys = KeyPrefix::default();
        assert_eq!(keys.code_of_link_key(keys.link_key(&code).as_bytes()), Some(code));
    }
    let _ = CheckKeys::parse(bytes);
});
