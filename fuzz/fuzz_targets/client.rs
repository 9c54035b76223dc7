//! Whatever Redis sends, in whatever pieces: the client neither panics nor answers a request
//! twice, and reading it in other pieces gives the same answers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shortlink_resolver::vocabulary::Code;
use shortlink_resolver::{Client, ClientSettings};

const REQUESTS: usize = 16;

fn answers(bytes: &[u8], piece: usize) -> (Vec<(usize, String)>, bool) {
    let mut client = Client::new(ClientSettings::default(), 0, 1);
    client.connecting(0);
    client.connected(0);
    for number in 0..REQUESTS {
        let code = Code::parse(format!("c{number}").as_bytes()).expect("a code");
        client.submit(&code, number, 0).expect("submitted");
    }
    client.wrote(client.output().len());
    let mut done = Vec::new();
    let stream = [b"%0\r\n", bytes].concat();
    for piece in stream.chunks(piece) {
        let space = client.input_space();
        if space.len() < piece.len() {
            return (done, true);
        }
        space[..piece.len()].copy_from_slice(piece);
        client.received(piece.len());
        loop {
            match client.next_completion(0, 1000) {
                Ok(Some(next)) => done.push((next.token, format!("{:?}", next.answer))),
                Ok(None) => break,
                Err(_) => return (done, true),
            }
        }
    }
    (done, false)
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let (whole, failed) = answers(bytes, 1 << 14);
    let (pieces, failed_in_pieces) = answers(bytes, usize::from(piece).max(1));
    assert_eq!(whole, pieces);
    assert_eq!(failed, failed_in_pieces);
    assert!(whole.iter().enumerate().all(|(index, (token, _))| index == *token));
});
