//! Numbers of errors, for programs that have no types of ours: a C ABI, logs, other languages. `spec/errors.md` says what each means.
//!
//! The hundred says where an error arises: 1 at an address, 2 while two processes become a session, 3 at the end of a session (from 311 on:
//! the peer broke the protocol), 4 at a call.

pub use crate::constants::errors::*;

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn numbers_go_up_and_are_those_of_the_specification() {
        assert!(ALL.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, none twice");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/errors.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let number: u16 = cells.next()?.parse().ok()?;
            let name = cells.next()?.trim_matches('`').to_owned();
            assert!(cells.clone().count() == 2 && cells.all(|cell| cell.len() > 3), "{line}");
            Some((number, name))
        });
        let said: Vec<_> = ALL.iter().map(|(number, name)| (*number, (*name).to_owned())).collect();
        assert_eq!(rows.collect::<Vec<_>>(), said);
    }
}
