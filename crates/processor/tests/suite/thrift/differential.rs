//! The Thrift engines against the Rust `thrift` crate: what one accepts or rejects, so does the other, with the same
//! values and the same end.
//!
//! What the peer is and where it differs is said in `fixture/thrift_peer.rs`. One more difference is not met here: the
//! crate writes an id that is 15 above the last one in the long form.

use super::fixture::{PROTOCOLS, processor};
use super::peer::{IDL, agree, boxed, elem_type, headers_agree, ttype};
use proptest::prelude::*;
use thrift::protocol::*;
use tollfree_layout::table::{FieldRow, Kind, Label, TypeRow};
use tollfree_processor::Processor;
use tollfree_processor::thrift::Protocol;

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
            headers_agree(protocol, &input);
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
