//! Objects that a hostile peer has changed. What is accepted is read to its end by `verified`, which stands beside this.

use super::{bytes, field, schemas, varint, verified};
use proptest::prelude::*;
use tollfree_processor::{Arena, Limits, Processor, VerifyError};

const NAME: &str = "t3.All";

/// An object with every kind of part.
pub(super) fn object(p: &Processor) -> Vec<u8> {
    let inner = [varint(3, 1 << 50), bytes(9, b"inner"), varint(999, 7)].concat();
    let input = [
        field(1, 1, &1.5f64.to_le_bytes()),
        bytes(9, "añ€😀".as_bytes()),
        bytes(11, &[bytes(11, &inner), varint(71, 3)].concat()),
        bytes(25, &[1, 2, 3, 4]),
        bytes(28, &[1, 0]),
        bytes(29, b"first"),
        bytes(29, b"second"),
        bytes(31, &inner),
        bytes(31, b""),
        bytes(51, &[bytes(1, b"k"), varint(2, 5)].concat()),
        bytes(52, &[varint(1, 5), bytes(2, &inner)].concat()),
        bytes(72, b"chosen"),
        varint(998, 1),
    ]
    .concat();
    let mut arena = Arena::with_limit(1 << 20);
    let type_idx = p.type_by_name(NAME).unwrap();
    p.decode(type_idx, &input, &mut arena, &Limits::default()).unwrap().bytes().to_vec()
}

fn check(p: &Processor, bytes: &[u8]) -> bool {
    verified(p, bytes, 100).is_ok()
}

#[test]
fn every_word_forged_to_every_telling_value() {
    let (p, _) = schemas();
    let good = object(&p);
    assert!(check(&p, &good));
    let len = good.len() as u32;
    let mut accepted = 0;
    let mut tried = 0;
    for at in (0..good.len() - 3).step_by(4) {
        let old = u32::from_le_bytes(good[at..at + 4].try_into().unwrap());
        let telling =
            [0, 1, 7, 8, 31, 32, 40, len - 8, len - 1, len, len + 8, 1 << 31, u32::MAX, u32::MAX - 7];
        let near = [old ^ 1, old ^ 8, old.wrapping_add(1), old.wrapping_add(8), old.wrapping_sub(8)];
        for value in telling.into_iter().chain(near).chain((32..len).step_by(8)) {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            tried += 1;
            accepted += usize::from(check(&p, &bytes));
        }
    }
    assert!(accepted > 100 && accepted < tried, "{accepted} of {tried} accepted");
}

#[test]
fn each_rule_is_named() {
    let (p, _) = schemas();
    let good = object(&p);
    let type_idx = p.type_by_name(NAME).unwrap();
    let rules = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        verified(&p, &bytes, 100).unwrap_err()
    };
    assert!(matches!(rules(16, 0), VerifyError::Type { found, .. } if found as u32 == 0));
    assert!(matches!(rules(24, 1), VerifyError::Header(_)));
    assert!(matches!(rules(0, 0), VerifyError::Header(_)));
    assert!(verified(&p, &good, 3).is_ok());
    let shallow = verified(&p, &good, 1).unwrap_err().to_string();
    assert!(shallow.contains("too deep") && shallow.contains("f_message"), "{shallow}");
    // The message's own offset in its place: a circle.
    let row = p.table().fields_of(type_idx).iter().find(|row| row.number == 11).unwrap();
    let circle = rules(32 + row.slot_off as usize, 32).to_string();
    assert!(circle.contains("circle") || circle.contains("deep"), "{circle}");
    let outside = rules(32 + row.slot_off as usize, good.len() as u32).to_string();
    assert!(outside.contains("out of the object"), "{outside}");
    // Behind the last field of the last presence word, and in a string's span.
    let field_count = p.table().fields_of(type_idx).len();
    assert!(
        field_count > 32 && !field_count.is_multiple_of(32),
        "the type has several words, and room in the last"
    );
    let none = rules(32 + 4 + 4 * (field_count / 32), 1 << 31).to_string();
    assert!(none.contains("belongs to no field"), "{none}");
    let text = p.table().fields_of(type_idx).iter().find(|row| row.number == 9).unwrap();
    let beyond = rules(32 + text.slot_off as usize, good.len() as u32).to_string();
    assert!(beyond.contains("a string leads out of the object"), "{beyond}");
}

/// Records that share children: 2^n paths through n records must not be walked.
#[test]
fn shared_records_are_refused_before_they_multiply() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name(NAME).unwrap();
    let nest = (0..60).fold(Vec::new(), |inner, _| [bytes(11, &inner), bytes(73, b"")].concat());
    let mut arena = Arena::with_limit(1 << 20);
    let mut object = p.decode(type_idx, &nest, &mut arena, &Limits::default()).unwrap().bytes().to_vec();
    let rows = p.table().fields_of(type_idx);
    let slot = |number| rows.iter().find(|row| row.number == number).unwrap().slot_off as usize;
    let (message, choice) = (slot(11), slot(73));
    let mut rec = 32;
    loop {
        let child = u32::from_le_bytes(object[rec + message..rec + message + 4].try_into().unwrap());
        if child == 0 {
            break;
        }
        object[rec + choice..rec + choice + 4].copy_from_slice(&child.to_le_bytes());
        rec = child as usize;
    }
    let error = verified(&p, &object, 100).unwrap_err().to_string();
    assert!(error.contains("overlap"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_damage_never_leads_outside(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut: prop::sample::Index) {
        thread_local! { static GOOD: (Processor, Vec<u8>) = { let p = schemas().0; let o = object(&p); (p, o) } }
        GOOD.with(|(p, good)| {
            let mut bytes = good.clone();
            for (at, byte) in changes {
                // The header is checked elsewhere; damage there hides the rest.
                let at = 32 + at.index(good.len() - 32);
                bytes[at] = byte;
            }
            check(p, &bytes);
            bytes.truncate(cut.index(good.len()));
            assert!(!check(p, &bytes));
        });
    }
}
