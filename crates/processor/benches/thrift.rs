//! Thrift's compact protocol, this processor against the Rust `thrift` crate in one run: replies and calls of a social
//! network, decoded, and encoded. `cargo bench -p tollfree-processor --bench thrift`. Steers work on the engine;
//! published figures come from `tollfree bench`.
//!
//! The peer's structs are read and written as its compiler generates them: through `dyn` protocols, with fields that
//! are options. Its input is a slice, its output a vector, the fastest transports there are. The messages are those of the corpus
//! (`TOLLFREE_CORPORA`, or beside the project), else timelines built from the one post in the tests' data.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thrift::protocol::{
    TCompactInputProtocol, TCompactOutputProtocol, TFieldIdentifier, TInputProtocol, TListIdentifier,
    TMapIdentifier, TOutputProtocol, TStructIdentifier, TType,
};
use tollfree_processor::thrift::{MessageHeader, Protocol};
use tollfree_processor::{Arena, Limits, Processor, Record, Value};
use tollfree_schema::Schema;

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(10);

/// What the peer's compiler generates for a type.
trait Generated: Sized {
    const TYPE: TType;
    fn read(from: &mut dyn TInputProtocol) -> thrift::Result<Self>;
    fn write(&self, to: &mut dyn TOutputProtocol) -> thrift::Result<()>;
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
}

macro_rules! structs {
    ($($name:ident { $($id:literal $field:ident: $type:ty,)* })*) => {$(
        #[derive(Default)]
        struct $name {
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

/// Nanoseconds a call, one figure a round.
fn round(run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0u32;
    while start.elapsed() < ROUND {
        run();
        count += 1;
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

/// Fields of the struct and of those in it, counting every element.
fn count(record: Record<'_>) -> usize {
    record.fields().map(|(_, value)| count_value(value)).sum()
}

fn count_value(value: Value<'_>) -> usize {
    match value {
        Value::Message(record) => 1 + count(record),
        Value::List(list) | Value::Map(list) => list.iter().map(count_value).sum(),
        _ => 1,
    }
}

/// Times decoding and encoding of the struct in `bytes`; prints medians.
fn compare<T: Generated>(processor: &Processor, type_name: &str, title: &str, bytes: &[u8]) {
    let type_idx = processor.type_by_name(type_name).expect("the schema has it");
    let limits = Limits::default();
    let (mut arena, mut other) = (Arena::with_limit(1 << 24), Arena::with_limit(1 << 24));
    let (object, end) = processor
        .decode_thrift(Protocol::Compact, type_idx, bytes, 0, &mut other, &limits)
        .expect("the message decodes");
    assert_eq!(end, bytes.len());
    let peer = T::read(&mut TCompactInputProtocol::new(bytes)).expect("the peer decodes it, too");
    let (mut out, mut peer_out) = (Vec::new(), Vec::new());
    object.encode_thrift(Protocol::Compact, &mut out).expect("encodes");
    assert!(out == bytes, "{title} is encoded otherwise");
    peer.write(&mut TCompactOutputProtocol::new(&mut peer_out)).expect("a vector grows");
    assert_eq!(peer_out.len(), bytes.len());
    let fields = count(object.root());
    type Row<'r> = (&'static str, Box<dyn FnMut() + 'r>);
    let mut rows: [Row<'_>; 4] = [
        (
            "decode and drop, thrift",
            Box::new(|| {
                let mut from = TCompactInputProtocol::new(black_box(bytes));
                black_box(T::read(&mut from).expect("decoded before"));
            }),
        ),
        (
            "decode and drop, copying",
            Box::new(|| {
                let done = processor.decode_thrift(
                    Protocol::Compact,
                    type_idx,
                    black_box(bytes),
                    0,
                    &mut arena,
                    &limits,
                );
                black_box(done.expect("decoded before"));
            }),
        ),
        (
            "encode, thrift",
            Box::new(|| {
                peer_out.clear();
                let mut to = TCompactOutputProtocol::new(&mut peer_out);
                black_box(&peer).write(&mut to).expect("a vector grows");
            }),
        ),
        (
            "encode",
            Box::new(|| {
                out.clear();
                black_box(&object).encode_thrift(Protocol::Compact, &mut out).expect("encodes");
                black_box(&mut out);
            }),
        ),
    ];
    let mut times = vec![Vec::with_capacity(ROUNDS); rows.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in rows.iter_mut().zip(&mut times) {
            times.push(round(run));
        }
    }
    let object_len = object.bytes().len();
    println!("{title}: {} bytes, {fields} fields, object of {object_len} bytes", bytes.len());
    let mut peer_median = 0.0;
    for (idx, ((name, _), mut times)) in rows.iter().zip(times).enumerate() {
        times.sort_by(f64::total_cmp);
        let median = times[ROUNDS / 2];
        let share = if idx % 2 == 0 {
            peer_median = median;
            String::new()
        } else {
            format!("{:>8.3} of thrift's", median / peer_median)
        };
        println!("  {name:<26}{median:>12.0} ns{:>9.2} ns a field{share}", median / fields as f64);
    }
}

/// The struct of a compact message in this file.
fn payload(path: &Path) -> Vec<u8> {
    let message = std::fs::read(path).expect("the file can be read");
    let (_, at) = MessageHeader::read(Protocol::Compact, &message).expect("a compact message");
    message[at..].to_vec()
}

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let data = here.join("tests/testdata/thrift-socialnetwork");
    let schema = Schema::from_thrift_file(&data.join("socialnetwork.thrift"), &[]).expect("valid IDL");
    let p = Processor::new(schema.compile().expect("a valid table"));
    let timeline = "socialnetwork.HomeTimelineService.ReadHomeTimeline_result";
    let beside = here.join("../../../shared/corpora");
    let corpora = std::env::var_os("TOLLFREE_CORPORA").map_or(beside, PathBuf::from);
    let dir = corpora.join("thrift-socialnetwork/compact");
    println!("compact protocol; medians of {ROUNDS} rounds");
    if !dir.is_dir() {
        println!("no corpus: a timeline of one post a hundred times");
        // Field 0 and its header, the post, the stop.
        let reply = payload(&data.join("compact/PostStorageService.ReadPost.reply.bin"));
        let post = &reply[2..reply.len() - 1];
        let bytes = [&[0x09, 0, 0xfc, 100], post.repeat(100).as_slice(), &[0]].concat();
        compare::<Posts>(&p, timeline, "timeline", &bytes);
        return;
    }
    let file = |name: &str| payload(&dir.join(format!("{name}.bin")));
    let service = |name: &str| format!("socialnetwork.{name}");
    compare::<Posts>(
        &p,
        timeline,
        "ReadHomeTimeline.reply",
        &file("HomeTimelineService.ReadHomeTimeline.reply"),
    );
    compare::<Ids>(
        &p,
        &service("SocialGraphService.GetFollowers_result"),
        "GetFollowers.reply.large",
        &file("SocialGraphService.GetFollowers.reply.large"),
    );
    compare::<ComposePost>(
        &p,
        &service("ComposePostService.ComposePost_args"),
        "ComposePost.call.large",
        &file("ComposePostService.ComposePost.call.large"),
    );
    compare::<Urls>(
        &p,
        &service("UrlShortenService.ComposeUrls_result"),
        "ComposeUrls.reply.64",
        &file("UrlShortenService.ComposeUrls.reply.64"),
    );
    compare::<Posts>(
        &p,
        &service("PostStorageService.ReadPosts_result"),
        "ReadPosts.reply",
        &file("PostStorageService.ReadPosts.reply"),
    );
    compare::<ReadPosts>(
        &p,
        &service("PostStorageService.ReadPosts_args"),
        "ReadPosts.call",
        &file("PostStorageService.ReadPosts.call"),
    );
}
