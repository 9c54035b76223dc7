//! The house stays as ARCHITECTURE.md draws it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use shortlink_tests::workspace;

/// The folder of each crate, and the crates of this workspace that its manifest may name, tests of it aside.
const ARROWS: [(&str, &[&str]); 13] = [
    ("vocabulary", &[]),
    ("resolver", &["vocabulary"]),
    ("ngx-module", &["resolver"]),
    ("sidecar/core", &["vocabulary"]),
    ("sidecar/api", &["sidecar/core", "vocabulary"]),
    ("sidecar/store", &["sidecar/core", "vocabulary"]),
    ("sidecar/publisher", &["sidecar/core", "vocabulary"]),
    ("sidecar/enrich", &["sidecar/core"]),
    (
        "sidecar/service",
        &["sidecar/core", "sidecar/store", "vocabulary"],
    ),
    (
        "sidecar/http",
        &[
            "sidecar/api",
            "sidecar/core",
            "sidecar/service",
            "sidecar/store",
            "vocabulary",
        ],
    ),
    ("sidecar/client", &["sidecar/api"]),
    (
        "sidecar",
        &[
            "sidecar/api",
            "sidecar/client",
            "sidecar/core",
            "sidecar/enrich",
            "sidecar/http",
            "sidecar/publisher",
            "sidecar/service",
            "sidecar/store",
            "vocabulary",
        ],
    ),
    ("tests", &["vocabulary"]),
];

/// The crates whose manifests may name a library, tests of them aside.
const LIBRARIES: [(&str, &[&str]); 13] = [
    ("axum", &["sidecar/http"]),
    ("schemars", &["sidecar/api", "sidecar/http"]),
    ("sqlx", &["sidecar/store"]),
    ("redis", &["sidecar/publisher"]),
    ("ua-parser", &["sidecar/enrich"]),
    ("fancy-regex", &["sidecar/enrich"]),
    ("regex", &["sidecar/enrich"]),
    ("maxminddb", &["sidecar/enrich"]),
    ("comfy-table", &["sidecar/client"]),
    ("csv-core", &["sidecar/api"]),
    ("encoding_rs", &["sidecar/api"]),
    ("hyper", &["sidecar/http", "sidecar/client"]),
    ("hyper-util", &["sidecar/http", "sidecar/client"]),
];

fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(&*name, "target" | ".git" | "var" | "corpus" | "artifacts") {
                found.extend(files_below(&path, ending));
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// The code of a Rust file without its comments.
fn code_of(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a file");
    let code = text
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.collect::<Vec<_>>().join("\n")
}

/// Returns whether a file of this workspace holds no production code.
fn is_for_tests(file: &Path) -> bool {
    let inside = file.strip_prefix(workspace()).expect("below the workspace");
    let marks = ["tests", "tests.rs", "testing.rs", "examples"];
    inside
        .iter()
        .any(|step| marks.iter().any(|mark| step == *mark))
}

/// Returns whether `word` stands in `code` as a word of its own.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(start, _)| {
        let is_part = |character: char| character.is_alphanumeric() || character == '_';
        !code[..start].ends_with(is_part) && !code[start + word.len()..].starts_with(is_part)
    })
}

/// The dependencies that the manifest of a crate names for its library and programs.
fn dependencies(folder: &str) -> BTreeSet<String> {
    let manifest = workspace().join(folder).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("a manifest");
    let mut is_inside = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_inside = line.ends_with("dependencies]") && !line.contains("dev-");
        } else if is_inside && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            names.insert(name.to_owned());
        }
    }
    names
}

/// The name by which manifests depend on a crate.
fn name_of(folder: &str) -> String {
    match folder.strip_prefix("sidecar/") {
        Some(part) => format!("shortlink-{part}"),
        None => folder.to_owned(),
    }
}

#[test]
fn arrows_between_crates_point_only_as_drawn() {
    for (folder, allowed) in ARROWS {
        let dependencies = dependencies(folder);
        let used = ARROWS.map(|(folder, _)| folder);
        let used = used
            .into_iter()
            .filter(|used| dependencies.contains(&name_of(used)));
        assert_eq!(
            used.collect::<BTreeSet<_>>(),
            allowed.iter().copied().collect(),
            "{folder}"
        );
    }
    let members = fs::read_to_string(workspace().join("Cargo.toml")).expect("the workspace");
    let members = members.split("members = [").nth(1).expect("members");
    let members = members.split(']').next().expect("members");
    let listed: BTreeSet<&str> = members.split('"').skip(1).step_by(2).collect();
    assert_eq!(
        listed,
        ARROWS.iter().map(|(folder, _)| *folder).collect(),
        "a crate has no arrows drawn"
    );
}

#[test]
fn unsafe_code_stands_in_the_module_alone() {
    for file in files_below(workspace(), ".rs") {
        let inside = file.strip_prefix(workspace()).expect("below the workspace");
        if !inside.starts_with("ngx-module") && !inside.ends_with("tests/all/tidy.rs") {
            assert!(!has_word(&code_of(&file), "unsafe"), "{}", inside.display());
        }
    }
    for (folder, _) in ARROWS.iter().filter(|(folder, _)| *folder != "ngx-module") {
        let root = workspace().join(folder).join("src/lib.rs");
        let text = fs::read_to_string(root).expect("a root");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{folder}");
    }
}

#[test]
fn each_library_of_the_sidecar_is_named_by_its_crates_only() {
    for (library, homes) in LIBRARIES {
        let naming = ARROWS
            .iter()
            .map(|(folder, _)| *folder)
            .filter(|folder| dependencies(folder).contains(library));
        assert_eq!(naming.collect::<Vec<_>>(), homes, "{library}");
    }
}

#[test]
fn the_business_layer_reads_no_files() {
    let mut files = files_below(&workspace().join("sidecar/core/src"), ".rs");
    files.extend(files_below(&workspace().join("sidecar/service/src"), ".rs"));
    assert!(files.len() > 50);
    for file in files.iter().filter(|file| !is_for_tests(file)) {
        let code = code_of(file);
        for word in ["std::fs", "std::io", "std::env", "tokio::fs", "tokio::net"] {
            assert!(
                !has_word(&code, word),
                "{} speaks of {word}",
                file.display()
            );
        }
    }
}

#[test]
fn the_module_and_the_edge_keep_their_rooms() {
    for file in files_below(&workspace().join("resolver/src"), ".rs") {
        let code = code_of(&file);
        for word in ["ngx", "std::net", "std::io", "Instant", "SystemTime"] {
            assert!(!code.contains(word), "{} speaks of {word}", file.display());
        }
    }
    for file in files_below(&workspace().join("vocabulary/src"), ".rs") {
        let code = code_of(&file);
        for word in [
            "std::net",
            "std::io",
            "std::fs",
            "Instant",
            "SystemTime",
            "rand",
        ] {
            assert!(
                !has_word(&code, word),
                "{} speaks of {word}",
                file.display()
            );
        }
    }
}

#[test]
fn every_directive_and_variable_is_documented() {
    let reference = fs::read_to_string(workspace().join("docs/src/reference/directives.md"))
        .expect("reference");
    let conf = fs::read_to_string(workspace().join("ngx-module/src/conf.rs")).expect("conf.rs");
    let table = conf.split("= directives! {").nth(1).expect("the table");
    let table = table.split("\n};").next().expect("the table of directives");
    let rows = table.split(';').filter_map(|row| row.split_once(':'));
    let rows: Vec<(&str, &str)> = rows
        .map(|(name, row)| (name.trim().trim_matches('"'), row))
        .collect();
    let directives: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert!(directives.len() >= 5);
    for directive in &directives {
        assert!(
            reference.contains(&format!("## {directive}\n")),
            "{directive}"
        );
    }
    // The contexts that the module registers are those of the reference.
    let contexts = [
        ("NGX_HTTP_MAIN_CONF", "http"),
        ("NGX_HTTP_SRV_CONF", "server"),
        ("NGX_HTTP_LOC_CONF", "location"),
        ("NGX_HTTP_LIF_CONF", "if in location"),
    ];
    for (directive, row) in &rows {
        let kind = row.split("=>").next().expect("a type");
        let told: Vec<&str> = contexts
            .iter()
            .filter(|(flag, _)| has_word(kind, flag))
            .map(|(_, name)| *name)
            .collect();
        let section = reference.split(&format!("## {directive}\n")).nth(1);
        let section = section.and_then(|rest| rest.split("\n## ").next());
        let section = section.expect("a section");
        let row = |name: &str| {
            let row = section
                .lines()
                .find(|line| line.starts_with(&format!("| {name} |")));
            row.unwrap_or_else(|| panic!("{directive} has no {name}"))
                .to_owned()
        };
        assert_eq!(
            row("Context"),
            format!("| Context | {} |", told.join(", ")),
            "{directive}"
        );
        assert!(
            row("Syntax").contains(&format!("`{directive}")),
            "{directive}"
        );
        row("Default");
    }
    let documented = reference.matches("\n## shortlink").count();
    assert_eq!(
        documented,
        directives.len(),
        "a directive that is documented is gone"
    );
    let variables = fs::read_to_string(workspace().join("ngx-module/src/variables.rs"));
    let variables = variables.expect("variables.rs");
    let table = variables
        .split("VARIABLES")
        .nth(1)
        .expect("the table of variables");
    let table = table.split("];").next().expect("the table of variables");
    let names: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
    assert!(names.len() >= 7);
    for name in names {
        assert!(reference.contains(&format!("`${name}`")), "${name}");
    }
}

#[test]
fn the_documents_name_only_what_is_there() {
    let documents = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "bench/README.md",
        "containers/README.md",
    ];
    let mut documents: Vec<PathBuf> = documents.map(|it| workspace().join(it)).into();
    documents.extend(files_below(&workspace().join("docs"), ".md"));
    assert!(documents.len() > 25);
    for path in documents {
        let text = fs::read_to_string(&path).expect("a document");
        let document = path.display();
        for path in text.split('`').skip(1).step_by(2) {
            let is_path = path.contains('/')
                && !path.contains(' ')
                && [
                    "vocabulary",
                    "resolver",
                    "ngx-module",
                    "sidecar",
                    "nginx",
                    "packaging",
                    "migrations",
                    "tests",
                    "bench",
                    "scripts",
                    "fuzz",
                    "operations",
                    "containers",
                    "docs",
                ]
                .iter()
                .any(|room| path.starts_with(&format!("{room}/")));
            if is_path && !path.contains(['{', '*', '<']) {
                assert!(workspace().join(path).exists(), "{document} names {path}");
            }
        }
    }
}

/// Files that act on a link's number of visits, or have it as a default of a campaign, and so name it for another
/// reason than that links have it.
const ACTING_ON_VISITS: [&str; 8] = [
    "service/src/visits.rs",
    "store/src/visits/keeping.rs",
    "api/src/campaign.rs",
    "http/src/campaigns.rs",
    "core/src/campaign/defaults.rs",
    "store/src/defaults.rs",
    "console/pages/campaign.js",
    "console/pages/campaign-form.js",
];

/// The number of files that may name a member of a link; CONTRIBUTING.md lists them.
const FILES_OF_A_MEMBER: usize = 10;

#[test]
fn a_member_of_a_link_is_named_in_few_files() {
    let sidecar = workspace().join("sidecar");
    let mut files = files_below(&sidecar, ".rs");
    files.extend(files_below(&sidecar.join("console"), ".js"));
    let naming = files.iter().filter(|file| {
        let inside = file.strip_prefix(&sidecar).expect("below the sidecar");
        let is_acting = ACTING_ON_VISITS.iter().any(|path| inside.ends_with(path));
        let code = code_of(file);
        let production = code.split("#[cfg(test)]").next().unwrap_or_default();
        let names = ["max_visits", "maxVisits"];
        !is_for_tests(file) && !is_acting && names.iter().any(|name| has_word(production, name))
    });
    let naming: Vec<&PathBuf> = naming.collect();
    assert!(
        (1..=FILES_OF_A_MEMBER).contains(&naming.len()),
        "{naming:#?}"
    );
}
