//! The edge of each rule of a table: what just keeps it loads, what just breaks it is refused. And what the fingerprint of a type
//! depends on.

use super::tests::{Parts, blob, sample, seal};
use super::*;
use crate::flat;

/// The table with this change; the rule that it breaks, in words.
fn load(change: impl FnOnce(&mut Parts)) -> Result<Table, String> {
    let mut parts = sample();
    change(&mut parts);
    Table::load(&blob(&parts)).map_err(|error| error.to_string())
}

fn loads(case: &str, change: fn(&mut Parts)) {
    load(change).unwrap_or_else(|error| panic!("{case}: {error}"));
}

fn refuses(rule: &str, change: fn(&mut Parts)) {
    let error = load(change).map(|_| ()).unwrap_err();
    assert!(error.contains(rule), "{rule}: {error}");
}

/// A table of one type with so many fields, which are the members of one oneof and share a byte of the record.
fn one_type(field_count: u32, record_len: u32) -> Parts {
    let head_len = flat::PRESENCE_OFF + 4 * flat::presence_words(field_count);
    let field = |number| FieldRow {
        number,
        kind: Kind::Bool,
        label: Label::Explicit,
        flags: 0,
        slot_off: head_len + 4,
        aux_idx: NO_AUX,
        oneof_off: head_len,
        default_bits: 0,
        name: Text::default(),
        json_name: Text::default(),
    };
    let types = vec![TypeRow { name: Text::default(), first_field: 0, field_count, record_len, flags: 0 }];
    let header = TableHeader { type_count: 1, field_count, ..TableHeader::default() };
    (header, types, (1..=field_count).map(field).collect(), vec![], vec![], vec![])
}

fn load_one(field_count: u32, record_len: u32) -> Result<(), String> {
    Table::load(&blob(&one_type(field_count, record_len))).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn presence_takes_a_bit_a_field_in_whole_words() {
    for (field_count, words) in [(0, 1), (1, 1), (32, 1), (33, 2), (64, 2), (65, 3)] {
        assert_eq!(flat::presence_words(field_count), words, "{field_count}");
    }
}

#[test]
fn records_are_as_long_as_their_heads_and_as_long_as_records_get() {
    let misfit = |loaded: Result<(), String>| loaded.unwrap_err().contains("too small or too large");
    assert_eq!((load_one(0, 8), load_one(0, MAX_RECORD_LEN)), (Ok(()), Ok(())));
    assert!(misfit(load_one(0, 0)) && misfit(load_one(0, MAX_RECORD_LEN + 8)) && misfit(load_one(0, 12)));
    // Two words of presence, the oneof's tag, and the byte.
    assert_eq!(load_one(33, 24), Ok(()));
    assert!(misfit(load_one(33, 8)));
    let (mut in_head, mut tag_in_head) = (one_type(33, 24), one_type(33, 24));
    in_head.2[32].slot_off = 11;
    tag_in_head.2[32].oneof_off = 8;
    for (parts, rule) in [(in_head, "its slot lies outside"), (tag_in_head, "tag lies outside")] {
        let error = Table::load(&blob(&parts)).unwrap_err().to_string();
        assert!(error.contains(rule), "{error}");
    }
}

#[test]
fn a_type_has_as_many_fields_as_types_have() {
    let record_len = 4 + 4 * MAX_FIELD_COUNT.div_ceil(32) + 8;
    assert_eq!(load_one(MAX_FIELD_COUNT, record_len.next_multiple_of(8)), Ok(()));
    let error = load_one(MAX_FIELD_COUNT + 1, record_len.next_multiple_of(8)).unwrap_err();
    assert!(error.contains("too many fields"), "{error}");
}

#[test]
fn tables_are_as_long_as_their_header_and_as_long_as_tables_get() {
    let empty = blob(&(TableHeader::default(), vec![], vec![], vec![], vec![], vec![]));
    assert_eq!((empty.len(), Table::load(&empty).is_ok()), (HEADER_LEN, true));
    // Nothing of so many zeros is looked at.
    let zeros = vec![0; MAX_TABLE_LEN + 1];
    let too_long = TableError::Length { expected: HEADER_LEN, found: MAX_TABLE_LEN + 1 };
    assert_eq!(Table::load(&zeros).unwrap_err(), too_long);
    assert_eq!(Table::load(&zeros[1..]).unwrap_err(), TableError::Magic { found: 0 });
    for (at, version, flags) in [(4, VERSION + 1, 0), (6, VERSION, 1)] {
        let mut other = empty.clone();
        other[at] += 1;
        seal(&mut other);
        assert_eq!(Table::load(&other).unwrap_err(), TableError::Version { version, flags });
    }
    // The header's own word on the length must be the length too.
    let mut longer = empty.clone();
    longer[8] += 1;
    let error = Table::load(&longer).unwrap_err();
    assert_eq!(error, TableError::Length { expected: HEADER_LEN, found: HEADER_LEN });
}

#[test]
fn flags_are_for_the_fields_that_they_are_about() {
    loads("a string that is UTF-8", |p| p.2[0].flags = FieldRow::UTF8);
    refuses("checked for UTF-8", |p| p.2[5].flags = FieldRow::UTF8);
    loads("a message between group tags", |p| p.2[1].flags = FieldRow::DELIMITED);
    refuses("are delimited", |p| p.2[2].flags = FieldRow::DELIMITED);
    refuses("are delimited", |p| p.2[5].flags = FieldRow::DELIMITED);
    for function in [0, 3, 4, 5] {
        load(|p| p.2[function].flags = FieldRow::FUNCTION).unwrap();
    }
    for kind in [Kind::Bool, Kind::Float, Kind::Bytes] {
        load(|p| (p.2[3].kind, p.2[3].flags) = (kind, FieldRow::FUNCTION)).unwrap_err();
    }
    refuses("a function is named by one", |p| p.2[1].flags = FieldRow::FUNCTION);
    refuses("a function is named by one", |p| {
        (p.2[5].label, p.2[5].flags) = (Label::List, FieldRow::FUNCTION)
    });
    let listed = FieldRow::PACKED | FieldRow::SET | FieldRow::SENT | FieldRow::CLOSED;
    load(|p| (p.2[5].label, p.2[5].flags) = (Label::List, listed)).unwrap();
    loads("a map that must be sent", |p| p.2[2].flags = FieldRow::SENT);
    refuses("are packed", |p| (p.2[0].label, p.2[0].flags) = (Label::List, FieldRow::PACKED));
    refuses("only enums are closed", |p| p.2[3].flags = FieldRow::CLOSED);
    loads("a number that is no message", |p| p.2[5].label = Label::Implicit);
    refuses("a message field has explicit presence", |p| p.2[1].label = Label::Implicit);
    loads("the highest number", |p| p.2[5].number = MAX_NUMBER);
    refuses("2^29", |p| p.2[5].number = MAX_NUMBER + 1);
}

#[test]
fn defaults_are_of_single_values_and_those_of_strings_are_text() {
    refuses("have no default", |p| p.2[1].flags = FieldRow::DEFAULT);
    refuses("have no default", |p| (p.2[5].label, p.2[5].flags) = (Label::List, FieldRow::DEFAULT));
    let with_default = |kind, byte| {
        load(move |p| {
            p.5.push(byte);
            p.0.text_len += 1;
            (p.2[0].kind, p.2[0].flags, p.2[0].default_bits) = (kind, FieldRow::DEFAULT, 1 << 32 | 20);
        })
    };
    assert!(with_default(Kind::String, b'a').is_ok() && with_default(Kind::Bytes, 0xff).is_ok());
    assert!(with_default(Kind::String, 0xff).unwrap_err().contains("not UTF-8"));
}

#[test]
fn slots_and_tags_lie_between_the_head_and_the_end() {
    refuses("field row 5: its slot lies outside the record", |p| p.2[5].slot_off = 40);
    loads("a slot at the end", |p| p.2[5].slot_off = 36);
    loads("a tag at the end", |p| p.2[3..5].iter_mut().for_each(|field| field.oneof_off = 36));
    loads("a tag right behind the head", |p| {
        p.2[2].slot_off = 12;
        p.2[3..5].iter_mut().for_each(|field| field.oneof_off = 8);
    });
    for tag in [4, 13, 40] {
        let error = load(|p| p.2[3].oneof_off = tag).unwrap_err();
        assert!(error.contains("field row 3: its oneof's tag lies outside the record"), "{tag}: {error}");
    }
}

#[test]
fn entries_and_boxes_have_the_fields_that_they_stand_for() {
    let rule = "the fields of a map entry or box have explicit presence";
    refuses(rule, |p| p.2[0].label = Label::Implicit);
    refuses(rule, |p| p.2[0].label = Label::Required);
    refuses(rule, |p| p.2[0].oneof_off = 20);
    let boxed = |number| {
        let mut parts = one_type(1, 24);
        (parts.1[0].flags, parts.2[0].number, parts.2[0].oneof_off) = (TypeRow::BOX, number, 0);
        Table::load(&blob(&parts)).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(boxed(1), Ok(()));
    assert!(boxed(2).unwrap_err().contains("a box the field 1"));
}

#[test]
fn values_of_an_enum_ascend_and_may_be_equal() {
    let numbers = |numbers: [i32; 2]| {
        load(move |p| {
            p.4 = numbers.map(|number| ValueRow { number, ..p.4[0] }).to_vec();
            (p.0.value_count, p.3[0].value_count) = (2, 2);
        })
    };
    assert!(numbers([-1, 1]).is_ok() && numbers([1, 1]).is_ok(), "an alias");
    assert!(numbers([1, -1]).unwrap_err().contains("ascending"));
}

#[test]
fn words_that_are_reserved_are_zero_whatever_is_beside_them() {
    let enum_row = {
        let (header, ..) = sample();
        header.section_offsets()[2]
    };
    for flags in [0, 1, 1 << 31] {
        let mut parts = sample();
        parts.3[0].flags = flags;
        let mut bytes = blob(&parts);
        bytes[enum_row + 20] = 1;
        seal(&mut bytes);
        let error = Table::load(&bytes).unwrap_err().to_string();
        assert!(error.contains("reserved word is not zero"), "{flags:#x}: {error}");
    }
}

#[test]
fn a_table_gives_its_rows_and_knows_how_much_memory_they_take() {
    let bytes = blob(&sample());
    let table = Table::load(&bytes).unwrap();
    assert_eq!((table.types().len(), table.fields().len(), table.enums().len()), (2, 6, 1));
    assert_eq!(table.type_by_name("Entry"), Some(0));
    assert_eq!(table.type_by_name("Nod"), None);
    assert_eq!(table.fingerprint(), Fingerprint::of_blob(&bytes));
    let rows =
        2 * size_of::<TypeRow>() + 6 * size_of::<FieldRow>() + size_of::<EnumRow>() + size_of::<ValueRow>();
    assert_eq!(table.memory_len(), size_of::<Loaded>() + bytes.len() + rows);
}

/// The fingerprint of `Node`, which reaches all of the sample, after a change.
fn print(change: impl FnOnce(&mut Parts)) -> u64 {
    load(change).unwrap().type_fingerprint(1)
}

#[test]
fn the_fingerprint_of_a_type_is_that_of_all_that_it_reaches_and_of_nothing_else() {
    let before = print(|_| {});
    assert_eq!(before, 0xea9d_a44e_1b16_a6cd, "two ends of different builds compute the same: {before:#x}");
    let changes: [fn(&mut Parts); 13] = [
        |p| p.1[1].record_len = 48,
        |p| p.1[1].flags = TypeRow::UNION,
        |p| p.2[5].number = 10,
        |p| p.2[3].kind = Kind::Uint64,
        |p| p.2[5].label = Label::Required,
        |p| p.2[5].flags = FieldRow::CLOSED,
        |p| p.2[5].slot_off = 28,
        |p| p.2[3..5].iter_mut().for_each(|field| field.oneof_off = 32),
        |p| (p.2[3].flags, p.2[3].default_bits) = (FieldRow::DEFAULT, 1),
        |p| (p.2[3].flags, p.2[3].default_bits) = (FieldRow::DEFAULT, 1 << 32),
        |p| (p.2[3].flags, p.2[3].default_bits) = (FieldRow::DEFAULT, 2 << 32),
        |p| (p.2[0].flags, p.2[0].default_bits) = (FieldRow::DEFAULT, 1 << 32),
        |p| p.4[0].number = 2,
    ];
    let mut prints: Vec<u64> = changes.into_iter().map(print).collect();
    prints.push(before);
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), changes.len() + 1, "each change shows");
    assert_eq!(print(|p| p.2[5].name = p.2[0].name), before, "names do not show");
}

#[test]
fn the_values_of_an_enum_show_in_a_fingerprint_only_where_others_are_unknown() {
    let other_value = |enum_flags, field_flags| {
        let print = |number| {
            print(|p| {
                (p.3[0].flags, p.2[5].flags) = (enum_flags, field_flags);
                p.4[0].number = number;
            })
        };
        print(1) != print(2)
    };
    assert!(!other_value(0, 0), "an open enum");
    assert!(other_value(EnumRow::CLOSED, 0) && other_value(0, FieldRow::CLOSED));
    // Which of two enums a field is of: their places are told apart.
    let two_enums = |second| {
        print(|p| {
            p.3.push(EnumRow { first_value: 1, ..p.3[0] });
            p.4.push(ValueRow { number: 7, ..p.4[0] });
            (p.0.enum_count, p.0.value_count) = (2, 2);
            (p.2[3].kind, p.2[3].aux_idx) = (Kind::Enum, 0);
            p.2[5].aux_idx = second;
        })
    };
    assert_ne!(two_enums(0), two_enums(1));
}
