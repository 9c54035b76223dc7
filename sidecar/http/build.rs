//! Has the crate compiled again when a file of the console is added or removed.

fn main() {
    println!("cargo::rerun-if-changed=../console");
}
