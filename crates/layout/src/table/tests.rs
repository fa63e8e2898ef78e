use super::*;
use crate::flat;

/// Two types (a map entry, and a message with a map of itself, a oneof and an enum), one enum.
pub(crate) fn sample() -> Parts {
    let text = b"EntrykeyvalueNodeONE".to_vec();
    let t = |off, len| Text { off, len };
    let field = |number, kind, label, slot_off, aux_idx, name| FieldRow {
        number,
        kind,
        label,
        flags: 0,
        slot_off,
        aux_idx,
        oneof_off: 0,
        default_bits: 0,
        name,
        json_name: name,
    };
    let types = vec![
        TypeRow { name: t(0, 5), first_field: 0, field_count: 2, record_len: 24, flags: TypeRow::MAP_ENTRY },
        TypeRow { name: t(13, 4), first_field: 2, field_count: 4, record_len: 40, flags: 0 },
    ];
    let mut fields = vec![
        field(1, Kind::String, Label::Explicit, 8, NO_AUX, t(5, 3)),
        field(2, Kind::Message, Label::Explicit, 16, 1, t(8, 5)),
        field(1, Kind::Message, Label::Map, 8, 0, t(5, 3)),
        field(2, Kind::Int64, Label::Explicit, 16, NO_AUX, t(8, 5)),
        field(3, Kind::String, Label::Explicit, 16, NO_AUX, t(8, 5)),
        field(9, Kind::Enum, Label::Explicit, 24, 0, t(8, 5)),
    ];
    fields[3].oneof_off = 12;
    fields[4].oneof_off = 12;
    let enums = vec![EnumRow { name: t(13, 4), first_value: 0, value_count: 1, flags: EnumRow::CLOSED }];
    let values = vec![ValueRow { number: 1, name: t(17, 3) }];
    let header = TableHeader {
        type_count: 2,
        field_count: 6,
        enum_count: 1,
        value_count: 1,
        text_len: text.len() as u32,
        fingerprint: 0,
    };
    (header, types, fields, enums, values, text)
}

pub(crate) type Parts = (TableHeader, Vec<TypeRow>, Vec<FieldRow>, Vec<EnumRow>, Vec<ValueRow>, Vec<u8>);

pub(crate) fn blob((header, types, fields, enums, values, text): &Parts) -> Vec<u8> {
    let mut out = header.to_bytes().to_vec();
    types.iter().for_each(|row| out.extend(row.to_bytes()));
    fields.iter().for_each(|row| out.extend(row.to_bytes()));
    enums.iter().for_each(|row| out.extend(row.to_bytes()));
    values.iter().for_each(|row| out.extend(row.to_bytes()));
    out.extend(text);
    seal(&mut out);
    out
}

pub(crate) fn seal(blob: &mut [u8]) {
    let fingerprint = Fingerprint::of_blob(blob);
    blob[56..64].copy_from_slice(&fingerprint.to_le_bytes());
}

#[test]
fn a_good_table_loads_and_reads() {
    let bytes = blob(&sample());
    let table = Table::load(&bytes).unwrap();
    assert_eq!(table.type_by_name("Node"), Some(1));
    assert_eq!(table.fields_of(1).len(), 4);
    assert_eq!(table.text(table.fields_of(0)[0].name), "key");
    assert_eq!(table.values_of(0)[0].number, 1);
    assert_eq!(table.blob(), bytes);
    assert_eq!(flat::presence_words(0), 1);
}

fn refused(change: impl FnOnce(&mut Parts)) -> TableError {
    let mut parts = sample();
    change(&mut parts);
    Table::load(&blob(&parts)).unwrap_err()
}

#[test]
fn each_broken_rule_is_named() {
    let field_rule = |change: fn(&mut Parts)| match refused(change) {
        TableError::Field { rule, .. } => rule,
        other => panic!("{other}"),
    };
    let type_rule = |change: fn(&mut Parts)| match refused(change) {
        TableError::Type { rule, .. } => rule,
        other => panic!("{other}"),
    };
    assert!(field_rule(|p| p.2[0].slot_off = 6).contains("aligned"));
    assert!(field_rule(|p| p.2[0].slot_off = 4).contains("outside the record"));
    assert!(field_rule(|p| p.2[0].slot_off = 0xffff_fffc).contains("outside the record"));
    assert!(field_rule(|p| p.2[1].aux_idx = 2).contains("does not exist"));
    assert!(field_rule(|p| p.2[5].aux_idx = 1).contains("enum does not exist"));
    assert!(field_rule(|p| p.2[2].aux_idx = 1).contains("has entries"));
    assert!(field_rule(|p| p.2[2].label = Label::List).contains("has entries"));
    assert!(field_rule(|p| p.2[3].oneof_off = 40).contains("tag lies outside"));
    assert!(field_rule(|p| p.2[3].label = Label::Required).contains("explicit presence"));
    assert!(field_rule(|p| p.2[3].flags = FieldRow::PACKED).contains("packed"));
    assert!(field_rule(|p| p.2[3].flags = FieldRow::SENT).contains("must be sent"));
    assert!(field_rule(|p| p.2[3].flags = 0x8000).contains("unknown flags"));
    assert!(field_rule(|p| p.2[3].number = 1 << 29).contains("2^29"));
    assert!(field_rule(|p| p.2[3].name.off = u32::MAX).contains("outside the text"));
    assert!(field_rule(|p| p.2[3].flags = FieldRow::SET).contains("only a list is a set"));
    assert!(field_rule(|p| p.2[2].flags = FieldRow::SET).contains("only a list is a set"));
    assert!(field_rule(|p| p.2[0].default_bits = 1 << 32).contains("not stated"));
    assert!(field_rule(|p| p.2[3].default_bits = 1).contains("not stated"));
    let stated = |p: &mut Parts| (p.2[0].flags, p.2[0].default_bits) = (FieldRow::DEFAULT, 21);
    assert!(field_rule(stated).contains("outside the text"));
    assert!(type_rule(|p| p.2[3].number = 3).contains("ascending"));
    assert!(type_rule(|p| p.2[5].slot_off = 20).contains("overlap"));
    assert!(type_rule(|p| p.2[4].oneof_off = 32).contains("overlap"));
    assert!(type_rule(|p| p.2[5].slot_off = 12).contains("overlap"));
    assert!(type_rule(|p| p.1[0].record_len = 20).contains("multiple of 8"));
    assert!(type_rule(|p| p.1[0].record_len = 1 << 24).contains("multiple of 8"));
    assert!(type_rule(|p| p.1[1].first_field = 1).contains("follow"));
    assert!(type_rule(|p| p.1[1].field_count = 5).contains("more fields"));
    assert!(type_rule(|p| p.2[0].number = 0).contains("map entry"));
    assert!(matches!(refused(|p| p.1[1].field_count = 3), TableError::Field { .. }));
    assert!(matches!(refused(|p| p.3[0].value_count = 2), TableError::Enum { .. }));
    assert!(matches!(refused(|p| p.3[0].flags = 2), TableError::Enum { .. }));
    assert!(matches!(refused(|p| p.0.text_len = 19), TableError::Length { .. }));
    assert!(matches!(refused(|p| p.0.field_count = u32::MAX), TableError::Length { .. }));
}

#[test]
fn containers_that_nest_in_a_circle_are_refused() {
    let mut parts = sample();
    // The entry's value becomes a list of boxes, the box holds a map of the same entry.
    parts.1.push(TypeRow {
        name: Text::default(),
        first_field: 6,
        field_count: 1,
        record_len: 16,
        flags: TypeRow::BOX,
    });
    let row = FieldRow { number: 1, label: Label::Map, slot_off: 8, aux_idx: 0, ..parts.2[2] };
    parts.2.push(row);
    parts.2[1] = FieldRow { label: Label::List, aux_idx: 2, ..parts.2[1] };
    parts.0.type_count = 3;
    parts.0.field_count = 7;
    let error = Table::load(&blob(&parts)).unwrap_err();
    assert!(error.to_string().contains("circle"), "{error}");
    // By itself, a box is nothing's value.
    parts.2[1].label = Label::Explicit;
    let error = Table::load(&blob(&parts)).unwrap_err();
    assert!(error.to_string().contains("a box is an element of a list"), "{error}");
}

#[test]
fn no_single_byte_change_panics_and_most_are_refused() {
    let good = blob(&sample());
    let mut accepted = 0;
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(bytes == good || Table::load(&bytes).is_err(), "fingerprint misses byte {at}");
            seal(&mut bytes);
            accepted += usize::from(Table::load(&bytes).is_ok());
        }
    }
    // Names, numbers and unused defaults may change; structure may not.
    assert!(accepted < good.len() * 5 / 3, "{accepted} of {} changed tables load", good.len() * 5);
}

#[test]
fn every_truncation_is_refused() {
    let good = blob(&sample());
    for len in 0..good.len() {
        assert!(Table::load(&good[..len]).is_err());
    }
}

/// A table of nothing but one enum whose values all have the same name, as long as `text`.
fn values_of_one_text(count: usize, text: &[u8]) -> Vec<u8> {
    let name = Text { off: 0, len: text.len() as u32 };
    let enums = vec![EnumRow { name: Text::default(), first_value: 0, value_count: count as u32, flags: 0 }];
    let values = (0..count).map(|number| ValueRow { number: number as i32, name }).collect();
    let header = TableHeader {
        enum_count: 1,
        value_count: count as u32,
        text_len: text.len() as u32,
        ..TableHeader::default()
    };
    blob(&(header, vec![], vec![], enums, values, text.to_vec()))
}

/// Steps that loading may take for each byte of the blob, and beside that.
const STEPS: (u64, u64) = (1, 1000);

fn few_steps(bytes: &[u8]) -> Result<Table, TableError> {
    let (loaded, steps) = crate::steps::of(|| Table::load(bytes));
    let allowed = STEPS.0 * bytes.len() as u64 + STEPS.1;
    assert!(steps <= allowed, "{steps} steps for {} bytes", bytes.len());
    loaded
}

#[test]
fn names_may_share_a_text_but_not_make_the_loader_look_through_it_again_and_again() {
    few_steps(&values_of_one_text(1000, &[b'a'; 12 * 7])).unwrap();
    for (count, len) in [(1000, 12 * 9), (1000, 12_000), (10_000, 120_000)] {
        let refused = few_steps(&values_of_one_text(count, &vec![b'a'; len])).unwrap_err().to_string();
        assert!(refused.contains("names of all rows together"), "{refused}");
    }
}

/// They are looked through again for each fingerprint.
#[test]
fn defaults_that_share_a_long_text_are_refused() {
    let (header, ..) = sample();
    let fields_of_one_text = |kind, count: u32, len: usize| {
        let field = |number| FieldRow {
            number,
            kind,
            label: Label::Explicit,
            flags: FieldRow::DEFAULT,
            slot_off: (8 + 4 * (count / 32) + 8 * number).next_multiple_of(8),
            aux_idx: NO_AUX,
            oneof_off: 0,
            default_bits: (len as u64) << 32,
            name: Text::default(),
            json_name: Text::default(),
        };
        let fields: Vec<FieldRow> = (1..=count).map(field).collect();
        let record_len = fields[fields.len() - 1].slot_off + 8;
        let types =
            vec![TypeRow { name: Text::default(), first_field: 0, field_count: count, record_len, flags: 0 }];
        let header = TableHeader {
            type_count: 1,
            field_count: count,
            text_len: len as u32,
            enum_count: 0,
            value_count: 0,
            ..header
        };
        blob(&(header, types, fields, vec![], vec![], vec![b'a'; len]))
    };
    for kind in [Kind::String, Kind::Bytes] {
        let table = few_steps(&fields_of_one_text(kind, 1000, 48)).unwrap();
        let (_, steps) = crate::steps::of(|| table.type_fingerprint(0));
        assert!(steps <= 2 * table.blob().len() as u64, "{steps}");
        let refused = few_steps(&fields_of_one_text(kind, 1000, 10_000)).unwrap_err().to_string();
        assert!(refused.contains("defaults of all fields together"), "{refused}");
    }
}
