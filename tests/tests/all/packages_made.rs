//! The Debian packages as they are made, without installing them.

use std::fs;
use std::path::Path;
use std::process::Command;

use shortlink_tests::debian::{packages_in, said};
use shortlink_tests::{stack, workspace};

/// Makes the packages in a shell that has been set up so.
fn make(shell: &str, directory: &Path) {
    said(
        Command::new("bash")
            .args(["-euc", &format!("{shell}; exec scripts/build-deb \"$0\"")])
            .arg(directory)
            .current_dir(workspace())
            .env_remove("SOURCE_DATE_EPOCH")
            .env_remove("DEB_REVISION"),
    );
}

fn field(package: &Path, name: &str) -> String {
    let field = said(Command::new("dpkg-deb").arg("-f").arg(package).arg(name));
    field.trim().to_owned()
}

#[test]
fn they_are_the_same_each_time_and_as_debian_wants_them() {
    let (here, there) = (stack::directory(), stack::directory());
    make("true", here.path());
    make("umask 077; export TZ=Asia/Tokyo LC_ALL=POSIX", there.path());
    let packages = packages_in(here.path());
    for (package, again) in packages.iter().zip(packages_in(there.path())) {
        let same = fs::read(package).expect("a package") == fs::read(again).expect("it again");
        assert!(same, "{} differs", package.display());
        let version = concat!(env!("CARGO_PKG_VERSION"), "-1");
        assert_eq!(field(package, "Version"), version);
    }

    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    said(lintian.args(&packages));

    // The module asks for the nginx that it was built for.
    let provides = said(Command::new("dpkg-query").args(["-W", "-f", "${Provides}", "nginx"]));
    let mut provides = provides.split(", ");
    let abi = provides.find(|name| name.starts_with("nginx-abi-"));
    let abi = abi.expect("nginx provides its ABI");
    let depends = field(&packages[1], "Depends");
    assert!(depends.split(", ").any(|name| name == abi), "{depends}");
}
