//! The Rust `thrift` crate's rows.
//!
//! Its structs are read and written as Thrift's compiler generates them: through `dyn` protocols, with fields that
//! are options. Input is a slice, output a vector, the fastest transports there are.

use std::collections::BTreeMap;
use std::hint::black_box;

use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TCompactInputProtocol, TCompactOutputProtocol,
    TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier, TOutputProtocol, TStructIdentifier,
    TType,
};
use tollfree_bench::lookalike::Random;
use tollfree_processor::thrift::Protocol;

use super::measure::Runner;

/// The peer's name in tables.
pub(super) const PEER: &str = "thrift";

/// The peer's rows for a struct of type `T`.
pub(super) fn peer_rows<T: Generated + 'static>(protocol: Protocol, bytes: &[u8]) -> Vec<Runner<'_>> {
    let held = match T::decode(protocol, bytes) {
        Ok(held) => held,
        Err(why) => return vec![Runner::not_run("decode", PEER, format!("it refuses the message: {why}"))],
    };
    let mut out = Vec::new();
    vec![
        Runner::new("decode", PEER, move || {
            black_box(T::decode(protocol, black_box(bytes)).expect("it decoded before"));
        }),
        Runner::new("encode", PEER, move || {
            out.clear();
            black_box(&held).encode(protocol, &mut out);
            black_box(&mut out);
        }),
    ]
}

/// What the peer's compiler generates for a type.
pub(super) trait Generated: Sized {
    const TYPE: TType;
    fn read(from: &mut dyn TInputProtocol) -> thrift::Result<Self>;
    fn write(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()>;
    /// A value with seeded contents.
    fn seeded(random: &mut Random) -> Self;

    fn decode(protocol: Protocol, bytes: &[u8]) -> thrift::Result<Self> {
        match protocol {
            Protocol::Compact => Self::read(&mut TCompactInputProtocol::new(bytes)),
            _ => Self::read(&mut TBinaryInputProtocol::new(bytes, true)),
        }
    }

    fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let written = match protocol {
            Protocol::Compact => self.write(&mut TCompactOutputProtocol::new(out)),
            _ => self.write(&mut TBinaryOutputProtocol::new(out, true)),
        };
        written.expect("a vector grows");
    }
}

macro_rules! scalars {
    ($($type:ty, $code:ident, $read:ident, $write:ident;)*) => {$(
        impl Generated for $type {
            const TYPE: TType = TType::$code;
            fn read(from: &mut dyn TInputProtocol) -> thrift::Result<Self> {
                from.$read()
            }
            fn write(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
                to.$write(self.to_owned())
            }
            fn seeded(random: &mut Random) -> Self {
                let bits = random.below(<$type>::BITS.into());
                (random.below(u64::MAX) as $type).unsigned_abs().wrapping_shr(bits as u32) as $type
            }
        }
    )*};
}
scalars! {
    i32, I32, read_i32, write_i32;
    i64, I64, read_i64, write_i64;
}

impl Generated for String {
    const TYPE: TType = TType::String;
    fn read(from: &mut dyn TInputProtocol) -> thrift::Result<Self> {
        from.read_string()
    }
    fn write(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        to.write_string(self)
    }
    fn seeded(random: &mut Random) -> Self {
        let len = if random.below(8) == 0 { 60 + random.below(400) } else { 4 + random.below(28) };
        (0..len).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
    }
}

impl<T: Generated> Generated for Vec<T> {
    const TYPE: TType = TType::List;
    fn read(from: &mut dyn TInputProtocol) -> thrift::Result<Self> {
        let list = from.read_list_begin()?;
        let mut out = Vec::with_capacity(list.size.min(4096) as usize);
        for _ in 0..list.size {
            out.push(T::read(from)?);
        }
        from.read_list_end()?;
        Ok(out)
    }
    fn write(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        to.write_list_begin(&TListIdentifier::new(T::TYPE, self.len() as i32))?;
        for item in self {
            item.write(to)?;
        }
        to.write_list_end()
    }
    fn seeded(random: &mut Random) -> Self {
        // Lists of structs are longer in timelines than those inside their posts.
        let len = if size_of::<T>() > 100 { 10 + random.below(20) } else { random.below(16) };
        (0..len).map(|_| T::seeded(random)).collect()
    }
}

impl Generated for BTreeMap<String, String> {
    const TYPE: TType = TType::Map;
    fn read(from: &mut dyn TInputProtocol) -> thrift::Result<Self> {
        let map = from.read_map_begin()?;
        let mut out = BTreeMap::new();
        for _ in 0..map.size {
            out.insert(from.read_string()?, from.read_string()?);
        }
        from.read_map_end()?;
        Ok(out)
    }
    fn write(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        to.write_map_begin(&TMapIdentifier::new(TType::String, TType::String, self.len() as i32))?;
        for (key, value) in self {
            to.write_string(key)?;
            to.write_string(value)?;
        }
        to.write_map_end()
    }
    fn seeded(random: &mut Random) -> Self {
        (0..random.below(4)).map(|_| (String::seeded(random), String::seeded(random))).collect()
    }
}

macro_rules! structs {
    ($($name:ident { $($id:literal $field:ident: $type:ty,)* })*) => {$(
        #[derive(Default)]
        pub(super) struct $name {
            $($field: Option<$type>,)*
        }
        impl Generated for $name {
            const TYPE: TType = TType::Struct;
            fn read(from: &mut dyn TInputProtocol) -> thrift::Result<Self> {
                let mut out = $name::default();
                from.read_struct_begin()?;
                loop {
                    let field = from.read_field_begin()?;
                    if field.field_type == TType::Stop {
                        break;
                    }
                    match field.id {
                        $(Some($id) => out.$field = Some(<$type>::read(from)?),)*
                        _ => from.skip(field.field_type)?,
                    }
                    from.read_field_end()?;
                }
                from.read_struct_end()?;
                Ok(out)
            }
            fn write(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()> {
                to.write_struct_begin(&TStructIdentifier::new(stringify!($name)))?;
                $(if let Some(value) = &self.$field {
                    to.write_field_begin(&TFieldIdentifier::new(
                        stringify!($field),
                        <$type as Generated>::TYPE,
                        $id,
                    ))?;
                    value.write(to)?;
                    to.write_field_end()?;
                })*
                to.write_field_stop()?;
                to.write_struct_end()
            }
            fn seeded(random: &mut Random) -> Self {
                $name { $($field: Some(Generated::seeded(random)),)* }
            }
        }
    )*};
}
structs! {
    Creator { 1 user_id: i64, 2 username: String, }
    UserMention { 1 user_id: i64, 2 username: String, }
    Media { 1 media_id: i64, 2 media_type: String, }
    Url { 1 shortened_url: String, 2 expanded_url: String, }
    Post {
        1 post_id: i64, 2 creator: Creator, 3 req_id: i64, 4 text: String, 5 user_mentions: Vec<UserMention>,
        6 media: Vec<Media>, 7 urls: Vec<Url>, 8 timestamp: i64, 9 post_type: i32,
    }
    Posts { 0 success: Vec<Post>, }
    Ids { 0 success: Vec<i64>, }
    Urls { 0 success: Vec<Url>, }
    ComposePost {
        1 req_id: i64, 2 username: String, 3 user_id: i64, 4 text: String, 5 media_ids: Vec<i64>,
        6 media_types: Vec<String>, 7 post_type: i32, 8 carrier: BTreeMap<String, String>,
    }
    ReadPosts { 1 req_id: i64, 2 post_ids: Vec<i64>, 3 carrier: BTreeMap<String, String>, }
}
