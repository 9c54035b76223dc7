use proptest::prelude::*;

use super::*;

/// Every kind of reply, whole.
fn replies() -> Vec<(Vec<u8>, Reply<'static>)> {
    let cases: [(&'static str, Reply<'static>); 16] = [
        ("$5\r\nhello\r\n", Reply::Bulk(b"hello")),
        ("$0\r\n\r\n", Reply::Bulk(b"")),
        ("$4\r\n\r\n\r\n\r\n", Reply::Bulk(b"\r\n\r\n")),
        ("$-1\r\n", Reply::Null),
        ("*-1\r\n", Reply::Null),
        ("_\r\n", Reply::Null),
        ("+OK\r\n", Reply::Line(b"OK")),
        (":-12\r\n", Reply::Line(b"-12")),
        (",1.5\r\n", Reply::Line(b"1.5")),
        ("#t\r\n", Reply::Line(b"t")),
        ("-ERR no\r\n", Reply::Error(b"ERR no")),
        ("!6\r\nERR no\r\n", Reply::Error(b"ERR no")),
        (
            "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            Reply::Aggregate(b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n"),
        ),
        (
            "%1\r\n+a\r\n%0\r\n",
            Reply::Aggregate(b"%1\r\n+a\r\n%0\r\n"),
        ),
        (
            ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nk\r\n",
            Reply::Push(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nk\r\n"),
        ),
        (">2\r\n$10\r\ninvalidate\r\n_\r\n", Reply::InvalidatedAll),
    ];
    cases
        .into_iter()
        .map(|(text, reply)| (text.as_bytes().to_vec(), reply))
        .collect()
}

#[test]
fn every_reply_is_read_whole_and_never_before_it_is_whole() {
    for (bytes, expected) in replies() {
        for cut in 0..bytes.len() {
            assert_eq!(
                Decoder::default().decode(&bytes[..cut]),
                Ok(Decoded::Incomplete),
                "{expected:?} cut at {cut}"
            );
        }
        let mut more = bytes.clone();
        more.extend_from_slice(b"+next\r\n");
        let decoded = Decoder::default().decode(&more);
        assert_eq!(decoded, Ok(Decoded::Reply(expected, bytes.len())));
    }
}

#[test]
fn keys_of_an_invalidation_are_handed_out_one_by_one_however_many_there_are() {
    let count = 20_000;
    let mut input = format!(">2\r\n$10\r\ninvalidate\r\n*{count}\r\n").into_bytes();
    let expected: Vec<String> = (0..count).map(|number| format!("sl:l:{number}")).collect();
    for key in &expected {
        input.extend(format!("${}\r\n{key}\r\n", key.len()).bytes());
    }
    // A key that no link can have is passed over.
    let long = "k".repeat(MAX_BULK as usize + 1);
    let header = format!(">2\r\n+invalidate\r\n*2\r\n${}\r\n", long.len());
    let rest = [&header, &long, "\r\n$1\r\na\r\n+next\r\n"].concat();
    input.extend_from_slice(rest.as_bytes());
    for piece in [1, 7, 4096, input.len()] {
        let mut decoder = Decoder::default();
        let mut buffer = Vec::new();
        let mut keys = Vec::new();
        let mut next = None;
        for bytes in input.chunks(piece) {
            buffer.extend_from_slice(bytes);
            loop {
                let used = match decoder.decode(&buffer).expect("RESP") {
                    Decoded::Incomplete => break,
                    Decoded::Skip(used) => used,
                    Decoded::Reply(Reply::Invalidated(key), used) => {
                        keys.push(String::from_utf8_lossy(key).into_owned());
                        used
                    }
                    Decoded::Reply(reply, used) => {
                        next = Some(format!("{reply:?}"));
                        used
                    }
                };
                buffer.drain(..used);
            }
        }
        assert_eq!(keys.len(), count + 1, "in pieces of {piece}");
        assert_eq!(keys[..count], expected);
        assert_eq!(keys[count], "a");
        assert_eq!(next, Some(format!("{:?}", Reply::Line(b"next"))));
    }
}

#[test]
fn an_attribute_is_passed_over() {
    let input = b"|1\r\n+ttl\r\n:3600\r\n$1\r\na\r\n";
    let mut decoder = Decoder::default();
    assert_eq!(decoder.decode(input), Ok(Decoded::Skip(17)));
    assert_eq!(
        decoder.decode(&input[17..]),
        Ok(Decoded::Reply(Reply::Bulk(b"a"), 7))
    );
    // Within an aggregate it belongs to the element behind it.
    let nested = b"*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n";
    let whole = Reply::Aggregate(nested);
    assert_eq!(
        Decoder::default().decode(nested),
        Ok(Decoded::Reply(whole, nested.len()))
    );
}

#[test]
fn an_oversized_string_is_reported_at_once_and_skipped_in_pieces() {
    let length = MAX_BULK + 1;
    let mut input = format!("${length}\r\n").into_bytes();
    let header = input.len();
    input.extend(std::iter::repeat_n(b'x', length as usize));
    input.extend_from_slice(b"\r\n$1\r\na\r\n");
    let mut decoder = Decoder::default();
    let first = decoder.decode(&input[..header]);
    assert_eq!(first, Ok(Decoded::Reply(Reply::Oversized(length), header)));
    assert_eq!(decoder.decode(b""), Ok(Decoded::Incomplete));
    let mut at = header;
    while let Ok(Decoded::Skip(skipped)) = decoder.decode(&input[at..input.len().min(at + 1000)]) {
        at += skipped;
    }
    assert_eq!(&input[at..], b"$1\r\na\r\n");
    assert_eq!(
        decoder.decode(&input[at..]),
        Ok(Decoded::Reply(Reply::Bulk(b"a"), 7))
    );
}

#[test]
fn what_is_not_resp_is_refused() {
    let deep = "*1\r\n".repeat(usize::from(MAX_DEPTH) + 1);
    for input in [
        "hello\r\n",
        "\r\n",
        "\n",
        "$\r\n",
        "$x\r\n",
        "$-2\r\n",
        "$01\r\na\r\n",
        "$99999999999\r\n",
        "$1\r\nab\r\n",
        "$1\r\na\rx",
        "+OK\rx",
        "*1\r\n?\r\n",
        "*x\r\n",
        &"+".repeat(MAX_LINE),
        &deep,
    ] {
        let refused = Decoder::default().decode(input.as_bytes());
        assert!(refused.is_err(), "{input:?}: {refused:?}");
    }
}

#[test]
fn commands_are_arrays_of_bulks() {
    let mut out = Vec::new();
    push_command(&[b"HELLO", b"3"], &mut out);
    assert_eq!(out, b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
    let prefix = KeyPrefix::new(b"p:").expect("a prefix");
    let encoder = GetEncoder::new(&prefix);
    for code in ["a", "Ab3xK9q2", "ABCDEFGHIJKLMNOP"] {
        let code: Code = code.parse().expect("a code");
        let (mut fast, mut plain) = (Vec::new(), Vec::new());
        encoder.push_get(&Key::Link(code), &mut fast);
        push_command(&[b"GET", prefix.link_key(&code).as_bytes()], &mut plain);
        assert_eq!(fast, plain);
    }
    let mut campaign = Vec::new();
    encoder.push_get(&Key::Campaign("4f".parse().expect("an id")), &mut campaign);
    assert_eq!(campaign, b"*2\r\n$3\r\nGET\r\n$6\r\np:c:4f\r\n");
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic_and_within_the_input(
        input in proptest::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"$*%>|-+:_\r\n0123456789".to_vec())], 0..64)
    ) {
        let mut decoder = Decoder::default();
        let mut at = 0;
        while let Ok(Decoded::Reply(_, used) | Decoded::Skip(used)) = decoder.decode(&input[at..]) {
            prop_assert!(used > 0 && at + used <= input.len());
            at += used;
        }
    }
}
