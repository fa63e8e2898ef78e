//! The Thrift engines against the Rust `thrift` crate: what one accepts or rejects, so does the other, with the same
//! values and the same end.
//!
//! The peer's compiler generates code for a schema; here a reader driven by the table does what that code does. Where
//! the crate's Rust code and Apache's other languages differ, the reader follows the others:
//!
//! - a known field with another type is skipped (the Rust code reads it without looking at its type);
//! - elements of another type than the schema's are an error (no language looks; what they read then is garbage);
//! - a union counts known fields only (newer compilers; older ones count all).
//!
//! One more difference is not met here: the crate writes an id that is 15 above the last one in the long form.

#[path = "fixture/thrift.rs"]
mod fixture;

use fixture::{PROTOCOLS, again, hex, processor, to_json};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};
use thrift::protocol::*;
use thrift::{Error, ProtocolError, ProtocolErrorKind, TConfiguration};
use tollfree_layout::table::{FieldRow, Kind, Label, TypeRow};
use tollfree_processor::thrift::{MessageHeader, Protocol};
use tollfree_processor::{Limits, Processor};

const IDL: &str = "
enum Color { RED = 1, GREEN, BLUE = -7 }
struct Inner { 1: i32 i, 2: string s, 14: bool b, 20: required i64 r, 21: required list<i8> l }
union Choice { 1: i32 number, 2: string text, 3: list<i32> list, 4: Inner inner }
struct Node { 1: optional Node next, 2: list<Node> children, 3: map<string, Node> named, 4: i8 x }
struct All {
  1: bool b, 2: i8 i8, 3: i16 i16, 4: i32 i32, 5: i64 i64, 6: double d, 7: string s, 8: binary bin,
  9: Inner inner, 10: Color color, 11: Choice choice, 12: Node node,
  13: list<bool> lb, 14: list<i8> l8, 15: list<i16> l16, 16: list<i32> l32, 17: list<i64> l64,
  18: list<double> ld, 19: list<string> ls, 20: list<binary> lbin, 21: list<Inner> li, 22: list<Color> lc,
  23: set<i64> s64, 24: set<string> ss, 25: set<bool> sb,
  26: map<string, string> mss, 27: map<i32, Inner> mi, 28: map<bool, double> mb, 29: map<i8, i16> m8,
  30: map<Inner, list<string>> mk, 31: map<list<i32>, set<i64>> mls,
  32: list<list<i64>> ll, 33: list<map<string, list<set<i32>>>> deep, 34: set<list<string>> sl,
  200: string far, 30000: bool last,
}
";

fn ttype(row: &FieldRow) -> TType {
    match row.label {
        Label::Map => TType::Map,
        Label::List if row.has(FieldRow::SET) => TType::Set,
        Label::List => TType::List,
        _ => scalar(row),
    }
}

fn scalar(row: &FieldRow) -> TType {
    match row.kind {
        Kind::Bool => TType::Bool,
        Kind::I8 => TType::I08,
        Kind::I16 => TType::I16,
        Kind::Int32 | Kind::Enum => TType::I32,
        Kind::Int64 => TType::I64,
        Kind::Double => TType::Double,
        Kind::String | Kind::Bytes => TType::String,
        _ => TType::Struct,
    }
}

/// The row of the container in a box, if elements are boxed.
fn boxed(p: &Processor, row: &FieldRow) -> Option<FieldRow> {
    let is_box =
        row.kind == Kind::Message && p.table().types()[row.aux_idx as usize].flags & TypeRow::BOX != 0;
    is_box.then(|| p.table().fields_of(row.aux_idx)[0])
}

fn elem_type(p: &Processor, row: &FieldRow) -> TType {
    boxed(p, row).map_or_else(|| scalar(row), |inner| ttype(&inner))
}

fn refuse<T>(message: &str) -> thrift::Result<T> {
    Err(Error::Protocol(ProtocolError::new(ProtocolErrorKind::InvalidData, message)))
}

/// Reads with the peer as its generated code does.
struct Peer<'p> {
    p: &'p Processor,
    from: &'p mut dyn TInputProtocol,
}

impl Peer<'_> {
    fn record(&mut self, type_idx: u32) -> thrift::Result<Json> {
        let table = self.p.table();
        let rows = table.fields_of(type_idx);
        let mut out = Map::new();
        let mut known = 0;
        self.from.read_struct_begin()?;
        loop {
            let field = self.from.read_field_begin()?;
            if field.field_type == TType::Stop {
                break;
            }
            let id = i32::from(field.id.unwrap());
            match rows.iter().find(|row| row.number as i32 == id && ttype(row) == field.field_type) {
                Some(row) => {
                    out.insert(table.text(row.name).to_owned(), self.value(row)?);
                    known += 1;
                }
                None => self.from.skip(field.field_type)?,
            }
            self.from.read_field_end()?;
        }
        self.from.read_struct_end()?;
        for row in rows {
            let must = row.label == Label::Required || row.has(FieldRow::SENT);
            if must && !out.contains_key(table.text(row.name)) {
                return refuse("required");
            }
        }
        if table.types()[type_idx as usize].flags & TypeRow::UNION != 0 && known != 1 {
            return refuse("union");
        }
        Ok(Json::Object(out))
    }

    fn value(&mut self, row: &FieldRow) -> thrift::Result<Json> {
        match row.label {
            Label::Map => {
                let parts: Vec<FieldRow> = self.p.table().fields_of(row.aux_idx).to_vec();
                let map = self.from.read_map_begin()?;
                if map.size > 0
                    && (map.key_type, map.value_type) != (Some(ttype(&parts[0])), Some(ttype(&parts[1])))
                {
                    return refuse("entries");
                }
                let comparable = !parts[0].label.is_list() && parts[0].kind != Kind::Message;
                let mut pairs: Vec<(Json, Json)> = Vec::new();
                for _ in 0..map.size {
                    let pair = (self.value(&parts[0])?, self.value(&parts[1])?);
                    pairs.retain(|(key, _)| !comparable || *key != pair.0);
                    pairs.push(pair);
                }
                self.from.read_map_end()?;
                Ok(pairs.into_iter().map(|(key, value)| json!([key, value])).collect())
            }
            Label::List => {
                let (elem, size) = if row.has(FieldRow::SET) {
                    let set = self.from.read_set_begin()?;
                    (set.element_type, set.size)
                } else {
                    let list = self.from.read_list_begin()?;
                    (list.element_type, list.size)
                };
                if size > 0 && elem != elem_type(self.p, row) {
                    return refuse("elements");
                }
                let inner = boxed(self.p, row);
                (0..size)
                    .map(|_| match &inner {
                        Some(inner) => self.value(inner),
                        None => self.single(row),
                    })
                    .collect()
            }
            _ => self.single(row),
        }
    }

    fn single(&mut self, row: &FieldRow) -> thrift::Result<Json> {
        Ok(match row.kind {
            Kind::Bool => json!(self.from.read_bool()?),
            Kind::I8 => json!(self.from.read_i8()?),
            Kind::I16 => json!(self.from.read_i16()?),
            Kind::Int32 | Kind::Enum => json!(self.from.read_i32()?),
            Kind::Int64 => json!(self.from.read_i64()?.to_string()),
            Kind::Double => {
                let value = self.from.read_double()?;
                if value.is_finite() { json!(value) } else { json!(format!("{:x}", value.to_bits())) }
            }
            Kind::String => json!(self.from.read_string()?),
            Kind::Bytes => json!({ "hex": hex(&self.from.read_bytes()?) }),
            _ => self.record(row.aux_idx)?,
        })
    }
}

fn peer_reads(
    p: &Processor,
    protocol: Protocol,
    type_idx: u32,
    input: &[u8],
) -> thrift::Result<(Json, usize)> {
    let config = TConfiguration::builder().max_string_size(Some(1 << 16)).build()?;
    let mut rest = input;
    let value = match protocol {
        Protocol::Compact => {
            Peer { p, from: &mut TCompactInputProtocol::with_config(&mut rest, config) }.record(type_idx)
        }
        _ => {
            Peer { p, from: &mut TBinaryInputProtocol::with_config(&mut rest, true, config) }.record(type_idx)
        }
    }?;
    Ok((value, input.len() - rest.len()))
}

/// Both read `input`, and agree; whether they accept it.
fn agree(p: &Processor, protocol: Protocol, type_idx: u32, input: &[u8]) -> bool {
    let peer = peer_reads(p, protocol, type_idx, input);
    let ours = again(p, protocol, type_idx, input, 0, &Limits::default());
    match (peer, ours) {
        (Ok((value, peer_end)), Ok((object, encoded, end))) => {
            let object = p.verify(type_idx, &object, 100).unwrap();
            assert_eq!(to_json(p, object.root()), value);
            assert_eq!(end, peer_end);
            let (reread, _) =
                peer_reads(p, protocol, type_idx, &encoded).expect("the peer reads what we wrote");
            assert_eq!(reread, value);
            true
        }
        (Err(_), Err(_)) => false,
        (peer, ours) => panic!(
            "{protocol:?} {}: the peer says {:?}, we say {:?}",
            hex(input),
            peer.map(|(value, _)| value),
            ours.map(|_| "accepted")
        ),
    }
}

/// Random numbers from a seed; proptest shrinks the seed, not the values.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn wide(&mut self) -> u64 {
        let bits = self.below(65) as u32;
        let value = self.below(1 << 31) << 33 ^ self.below(1 << 31) << 15 ^ self.below(1 << 20);
        value.checked_shr(bits).unwrap_or(0)
    }

    fn text(&mut self) -> String {
        let len = [0, 1, 3, 8, 31, 32, 33, 70][self.below(8) as usize];
        (0..len)
            .map(|_| ['a', 'z', 'ä', '€', '😀'][self.below(if len > 30 { 2 } else { 5 }) as usize])
            .collect()
    }
}

/// Writes a random struct with the peer. `odd`: with unknown fields, wrong types, fields twice.
struct Writer<'w> {
    p: &'w Processor,
    to: &'w mut dyn TOutputProtocol,
    random: Random,
    odd: bool,
}

impl Writer<'_> {
    fn record(&mut self, type_idx: u32, depth: u32) -> thrift::Result<()> {
        let rows: Vec<FieldRow> = self.p.table().fields_of(type_idx).to_vec();
        let union = self.p.table().types()[type_idx as usize].flags & TypeRow::UNION != 0;
        let only = self.random.below(rows.len() as u64) as usize;
        self.to.write_struct_begin(&TStructIdentifier::new("s"))?;
        for (idx, row) in rows.iter().enumerate() {
            let must = row.label == Label::Required || row.has(FieldRow::SENT);
            let deep = depth == 0 && (row.kind == Kind::Message);
            let skipped = if union { idx != only } else { !must && (deep || self.random.below(3) != 0) };
            if !skipped {
                self.field(row, depth)?;
            }
            if self.odd && self.random.below(6) == 0 {
                self.odd_field(row, depth)?;
            }
        }
        self.to.write_field_stop()?;
        self.to.write_struct_end()
    }

    fn field(&mut self, row: &FieldRow, depth: u32) -> thrift::Result<()> {
        self.to.write_field_begin(&TFieldIdentifier::new("f", ttype(row), row.number as i16))?;
        self.value(row, depth)?;
        self.to.write_field_end()
    }

    /// The same field again, its id with another field's type, or an id that nobody has.
    fn odd_field(&mut self, row: &FieldRow, depth: u32) -> thrift::Result<()> {
        let all = self.p.type_by_name("test.All").unwrap();
        let rows = self.p.table().fields_of(all);
        let mut other = rows[self.random.below(rows.len() as u64) as usize];
        if depth == 0 && other.kind == Kind::Message {
            return Ok(());
        }
        match self.random.below(3) {
            0 if depth > 0 => return self.field(row, depth - 1),
            1 => other.number = row.number,
            _ => other.number = [-5i16 as u16 as u32, 0, 150, 20_000][self.random.below(4) as usize],
        }
        self.field(&other, depth.saturating_sub(1))
    }

    fn value(&mut self, row: &FieldRow, depth: u32) -> thrift::Result<()> {
        let below = depth.saturating_sub(1);
        match row.label {
            Label::Map => {
                let parts: Vec<FieldRow> = self.p.table().fields_of(row.aux_idx).to_vec();
                let size = if depth == 0 { 0 } else { self.random.below(4) as i32 };
                let types = (ttype(&parts[0]), ttype(&parts[1]));
                self.to.write_map_begin(&TMapIdentifier::new(types.0, types.1, size))?;
                for _ in 0..size {
                    self.value(&parts[0], below)?;
                    self.value(&parts[1], below)?;
                }
                self.to.write_map_end()
            }
            Label::List => {
                let inner = boxed(self.p, row);
                let struct_like = row.kind == Kind::Message;
                let size = match (struct_like, depth) {
                    (true, 0) => 0,
                    (true, _) => self.random.below(3) as i32,
                    _ => [0, 1, 2, 14, 15, 16, 40][self.random.below(7) as usize],
                };
                let elem = elem_type(self.p, row);
                if row.has(FieldRow::SET) {
                    self.to.write_set_begin(&TSetIdentifier::new(elem, size))?;
                } else {
                    self.to.write_list_begin(&TListIdentifier::new(elem, size))?;
                }
                for _ in 0..size {
                    match &inner {
                        Some(inner) => self.value(inner, below)?,
                        None => self.single(row, below)?,
                    }
                }
                self.to.write_list_end()
            }
            _ => self.single(row, below),
        }
    }

    fn single(&mut self, row: &FieldRow, depth: u32) -> thrift::Result<()> {
        let wide = self.random.wide();
        match row.kind {
            Kind::Bool => self.to.write_bool(wide & 1 == 1),
            Kind::I8 => self.to.write_i8(wide as i8),
            Kind::I16 => self.to.write_i16(wide as i16),
            Kind::Int32 | Kind::Enum => self.to.write_i32(wide as i32),
            Kind::Int64 => self.to.write_i64(wide as i64),
            Kind::Double => self.to.write_double(f64::from_bits(wide << 3)),
            Kind::String => self.to.write_string(&self.random.text()),
            Kind::Bytes => self.to.write_bytes(&wide.to_le_bytes()[..(wide % 9) as usize]),
            _ => self.record(row.aux_idx, depth),
        }
    }
}

fn peer_writes(p: &Processor, protocol: Protocol, type_idx: u32, seed: u64, odd: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let random = Random(seed);
    match protocol {
        Protocol::Compact => {
            let to = &mut TCompactOutputProtocol::new(&mut out);
            Writer { p, to, random, odd }.record(type_idx, 4).unwrap();
        }
        _ => {
            let to = &mut TBinaryOutputProtocol::new(&mut out, true);
            Writer { p, to, random, odd }.record(type_idx, 4).unwrap();
        }
    }
    out
}

thread_local! {
    static ALL: (Processor, u32) = {
        let p = processor(IDL);
        let type_idx = p.type_by_name("test.All").unwrap();
        (p, type_idx)
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn what_the_peer_writes(seed: u64) {
        ALL.with(|(p, type_idx)| {
            for protocol in PROTOCOLS {
                let input = peer_writes(p, protocol, *type_idx, seed, false);
                prop_assert!(agree(p, protocol, *type_idx, &input));
            }
            Ok(())
        })?;
    }

    #[test]
    fn unknown_repeated_and_mistyped_fields(seed: u64) {
        ALL.with(|(p, type_idx)| {
            for protocol in PROTOCOLS {
                agree(p, protocol, *type_idx, &peer_writes(p, protocol, *type_idx, seed, true));
            }
        });
    }

    #[test]
    fn damaged_messages(seed: u64, odd: bool, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in prop::option::of(any::<prop::sample::Index>())) {
        ALL.with(|(p, type_idx)| {
            for protocol in PROTOCOLS {
                let mut input = peer_writes(p, protocol, *type_idx, seed, odd);
                for (at, byte) in &changes {
                    let at = at.index(input.len());
                    // Small changes keep the rest of the message telling.
                    input[at] = if byte & 1 == 0 { *byte } else { input[at] ^ (1 << (byte >> 5)) };
                }
                if let Some(cut) = &cut {
                    input.truncate(cut.index(input.len() + 1));
                }
                agree(p, protocol, *type_idx, &input);
            }
        });
    }

    #[test]
    fn noise(mut input in prop::collection::vec(any::<u8>(), 0..60), small: bool) {
        if small {
            input.iter_mut().for_each(|byte| *byte &= 0x1f);
        }
        ALL.with(|(p, type_idx)| {
            for protocol in PROTOCOLS {
                agree(p, protocol, *type_idx, &input);
            }
        });
    }

    #[test]
    fn headers(mut input in prop::collection::vec(any::<u8>(), 0..24), start in 0usize..5) {
        let starts: [&[u8]; 5] = [&[], &[0x82], &[0x82, 0x21, 0x01], &[0x80, 0x01, 0, 1, 0, 0, 0], &[0, 0, 0]];
        input.splice(0..0, starts[start].iter().copied());
        for protocol in [Protocol::Compact, Protocol::Binary, Protocol::BinaryOld] {
            let mut rest = &input[..];
            let peer = match protocol {
                Protocol::Compact => {
                    let config = TConfiguration::builder().max_string_size(Some(1 << 16)).build().unwrap();
                    TCompactInputProtocol::with_config(&mut rest, config).read_message_begin()
                }
                _ => {
                    let config = TConfiguration::builder().max_string_size(Some(1 << 16)).build().unwrap();
                    let strict = protocol == Protocol::Binary;
                    TBinaryInputProtocol::with_config(&mut rest, strict, config).read_message_begin()
                }
            };
            match (peer, MessageHeader::read(protocol, &input)) {
                (Ok(peer), Ok((ours, at))) => {
                    prop_assert_eq!(&peer.name, ours.name);
                    prop_assert_eq!(u8::from(peer.message_type), ours.kind as u8);
                    prop_assert_eq!(peer.sequence_number, ours.seq_id);
                    prop_assert_eq!(at, input.len() - rest.len());
                    let mut written = Vec::new();
                    ours.write(&mut written);
                    let again = MessageHeader::read(protocol, &written).unwrap();
                    prop_assert_eq!(again, (ours, written.len()));
                }
                (Err(_), Err(_)) => {}
                (peer, ours) => panic!("{protocol:?} {}: {peer:?}, {ours:?}", hex(&input)),
            }
        }
    }
}

/// The tests above mean something: messages of both kinds occur, and damaged ones are both taken and refused.
#[test]
fn the_cases_are_telling() {
    ALL.with(|(p, type_idx)| {
        for protocol in PROTOCOLS {
            let (mut accepted, mut refused, mut bytes) = (0, 0, 0);
            for seed in 0..300u64 {
                let mut input = peer_writes(p, protocol, *type_idx, seed * 77_777, true);
                bytes += input.len();
                let at = (seed as usize * 31) % input.len();
                input[at] ^= 0x10;
                let taken = agree(p, protocol, *type_idx, &input);
                accepted += u32::from(taken);
                refused += u32::from(!taken);
            }
            assert!(accepted > 30 && refused > 30 && bytes > 30_000, "{accepted}, {refused}, {bytes} bytes");
        }
    });
}
