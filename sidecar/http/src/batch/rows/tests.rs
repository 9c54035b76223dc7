use proptest::prelude::*;
use serde_json::json;

use super::*;

type Names = Vec<Option<String>>;

/// Reads a body that arrives in parts of a size.
fn read(format: Format, body: &[u8], part: usize, most: usize) -> (Vec<RawRow>, Names, bool) {
    read_as(Rows::new(format, most, Csv::default()), body, part)
}

fn read_as(mut rows: Rows, body: &[u8], part: usize) -> (Vec<RawRow>, Names, bool) {
    let mut read = Vec::new();
    let mut done = Ok(());
    for part in body.chunks(part.max(1)) {
        done = rows.push(part, &mut read);
        if done.is_err() {
            break;
        }
    }
    let is_whole = done.is_ok() && rows.finish(&mut read).is_ok();
    (read, rows.names().to_vec(), is_whole)
}

/// The rows of a body as members, `None` for those that are not objects.
fn members(format: Format, body: &str, part: usize) -> (Vec<Option<Value>>, bool) {
    let (rows, names, is_whole) = read(format, body.as_bytes(), part, 200);
    let members = rows
        .iter()
        .map(|row| row.members(&names, 200).ok().map(Value::Object));
    (members.collect(), is_whole)
}

#[test]
fn rows_are_read_however_the_body_is_cut() {
    let a = || Some(json!({"longUrl": "https://e/[1]?x={\"}\\"}));
    let b = || Some(json!({"a": [1, {"b": "]"}]}));
    let json_a = r#"{"longUrl": "https://e/[1]?x={\"}\\"}"#;
    let json_b = r#"{"a": [1, {"b": "]"}]}"#;
    for (format, body, expected, is_whole) in [
        (
            Format::Json,
            format!("[{json_a},{json_b}]"),
            vec![a(), b()],
            true,
        ),
        (
            Format::Json,
            format!(" [ {json_a} , {json_b} ] \n"),
            vec![a(), b()],
            true,
        ),
        (Format::Json, "[]".to_owned(), vec![], true),
        (
            Format::Json,
            "[1, \"x\", null]".to_owned(),
            vec![None, None, None],
            true,
        ),
        (Format::Json, format!("[{json_a}"), vec![], false),
        (Format::Json, format!("[{json_a},"), vec![a()], false),
        (Format::Json, format!("[{json_a},]"), vec![a()], false),
        (Format::Json, format!("[,{json_a}]"), vec![], false),
        (Format::Json, format!("[{json_a}] x"), vec![a()], false),
        (Format::Json, json_a.to_owned(), vec![], false),
        (Format::Json, "[}]".to_owned(), vec![], false),
        (Format::Json, String::new(), vec![], true),
        (
            Format::Ndjson,
            format!("{json_a}\n\n  \r\n{json_b}\r\n"),
            vec![a(), b()],
            true,
        ),
        (
            Format::Ndjson,
            format!("{json_a}\n{json_b}"),
            vec![a(), b()],
            true,
        ),
        (
            Format::Ndjson,
            format!("{json_a}\nnonsense\n{json_b}"),
            vec![a(), None, b()],
            true,
        ),
        (Format::Ndjson, String::new(), vec![], true),
    ] {
        for part in [1, 2, 3, 7, 1000] {
            let read = members(format, &body, part);
            assert_eq!(read, (expected.clone(), is_whole), "{body} by {part}");
        }
    }
}

#[test]
fn csv_names_say_what_values_are() {
    let body = "\u{feff}longUrl, redirectStatus,tags,note,parameters.member,dedupe\r\n\
                https://e/1,301,a| b,\"x, \"\"y\"\"\nz\",7,true\r\n\
                \r\n\
                https://e/2,,,,,\n\
                https://e/2,,,,,1h\n\
                https://e/2,,,,,1w\n\
                https://e/3,x,,,,\n\
                https://e/4\n";
    let expected = vec![
        Some(
            json!({"longUrl": "https://e/1", "redirectStatus": 301, "tags": ["a", "b"],
            "note": "x, \"y\"\nz", "parameters": {"member": "7"}, "dedupe": true}),
        ),
        Some(json!({"longUrl": "https://e/2"})),
        Some(json!({"longUrl": "https://e/2", "dedupe": {"within": "3600s"}})),
        None,
        None,
        None,
    ];
    for part in [1, 2, 3, 7, 1000] {
        assert_eq!(members(Format::Csv, body, part), (expected.clone(), true));
        // The last line need not end.
        let read = members(Format::Csv, body.trim_end(), part);
        assert_eq!(read, (expected.clone(), true), "{part}");
    }
}

#[test]
fn columns_are_named_and_left_out_as_the_request_says() {
    let body = "id;Name;go\n7;\"Li; Na\";a|b\n8;;c\n";
    let columns = [Some("parameters.member"), None, Some("tags")];
    let csv = |delimiter| Csv {
        delimiter,
        columns: Some(columns.map(|name| name.map(str::to_owned)).into()),
        ..Csv::default()
    };
    // Given, or recognised from the first line.
    for (part, delimiter) in [(1, None), (3, Some(b';')), (3, None), (1000, None)] {
        let rows = Rows::new(Format::Csv, 200, csv(delimiter));
        let (rows, names, is_whole) = read_as(rows, body.as_bytes(), part);
        assert!(is_whole);
        let members: Vec<_> = rows
            .iter()
            .map(|row| row.members(&names, 200).ok())
            .collect();
        let object = |value: Value| Some(value.as_object().cloned().unwrap_or_default());
        assert_eq!(
            members,
            [
                object(json!({"parameters": {"member": "7"}, "tags": ["a", "b"]})),
                object(json!({"parameters": {"member": "8"}, "tags": ["c"]})),
            ]
        );
    }
    let rows = Rows::new(Format::Csv, 200, csv(Some(b';')));
    let (rows, _, is_whole) = read_as(rows, b"id;Name\n7;x\n", 1000);
    assert!(rows.is_empty() && !is_whole);
}

#[test]
fn what_is_too_long_is_passed_over() {
    let long = "x".repeat(5000);
    for (format, body) in [
        (
            Format::Json,
            format!("[{{\"a\":1}}, \"{long}\", {{\"a\":1}}]"),
        ),
        (
            Format::Ndjson,
            format!("{{\"a\":1}}\n\"{long}\"\n{{\"a\":1}}\n"),
        ),
        (Format::Csv, format!("a\n1\n{long}\n1\n")),
    ] {
        for part in [1, 7, 100_000] {
            let (rows, names, is_whole) = read(format, body.as_bytes(), part, 2000);
            assert!(is_whole);
            assert_eq!(rows.len(), 3, "{format:?}");
            assert_eq!(rows[1], RawRow::TooLong);
            assert!(rows[0].members(&names, 200).is_ok() && rows[2].members(&names, 200).is_ok());
        }
    }
    let (_, _, is_whole) = read(Format::Csv, long.as_bytes(), 10, 2000);
    assert!(!is_whole, "without its names nothing can be read");
}

proptest! {
    /// Whatever the body and however it is cut, the same rows are read.
    #[test]
    fn cuts_do_not_matter(
        body in "[\\[\\]{}\",\\\\a1\n\r |]{0,60}",
        part in 1_usize..10,
        format in prop_oneof![Just(Format::Json), Just(Format::Ndjson), Just(Format::Csv)],
    ) {
        let whole = read(format, body.as_bytes(), 1000, 30);
        prop_assert_eq!(read(format, body.as_bytes(), part, 30), whole);
    }

    /// The cutter reads an array as serde_json does.
    #[test]
    fn agrees_with_a_parser(values in proptest::collection::vec(any_json(), 0..5), part in 1_usize..9) {
        let body = Value::from(values.clone()).to_string();
        let (rows, _, is_whole) = read(Format::Json, body.as_bytes(), part, 10_000);
        prop_assert!(is_whole);
        let read: Vec<Value> = rows
            .iter()
            .map(|row| match row {
                RawRow::Json(text) => serde_json::from_slice(text).expect("JSON"),
                other => panic!("{other:?}"),
            })
            .collect();
        prop_assert_eq!(read, values);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[\\[\\]{}\",\\\\\u{e9}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map("[\\]}\",]{0,3}", inner, 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}
