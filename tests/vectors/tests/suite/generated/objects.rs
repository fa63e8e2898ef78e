//! Messages that decode or have to be refused, and objects that are sound or not.

use serde_json::{Value, json};
use tollfree_layout::table::Table;
use tollfree_processor::{Arena, EncodeBuffer, Limits, Processor};
use tollfree_vectors::{from_hex, to_hex};

use super::{case, hold, refused, schemas};

const ORDER: &str = "shop.Order";
const SOUND: &str = "flat.md, Soundness";
const FROM: &str = "flat.md, From protobuf, and to it";

/// Messages of a type, in digits: the name of the case, the message, and whether it is good.
const THREE: [(&str, &str, bool); 41] = [
    ("an empty message", "", true),
    ("a string and a number", "0a0161 1005", true),
    ("an implicit zero is absent", "1000", true),
    ("a field that comes again", "1005 1006", true),
    ("an implicit field that comes again with zero", "1005 1000", true),
    ("a message that comes again is merged", "1a030a0161 1a021803", true),
    ("numbers packed and not", "2801 2a020203 2804", true),
    ("a oneof's second member clears the first", "3a0161 420162", true),
    ("a map's key that comes twice", "32050a01611001 32050a01611002", true),
    ("a map's entry without key and value", "3200", true),
    ("a long field that the type lacks", "fa0601 78", true),
    ("an unknown field", "f80701", true),
    ("another wire type of a known number", "0801", true),
    ("an open enum's unlisted number", "5063", true),
    ("an explicit zero", "590000000000000000", true),
    ("a message that ends within a field", "0a0561", false),
    ("a varint of eleven bytes", "10ffffffffffffffffffff01", false),
    ("a tag with the number 0", "0001", false),
    ("a string that is not UTF-8", "0a01ff", false),
    ("the end of a group that did not begin", "0c", false),
    ("a group that does not end", "f307", false),
    ("a group that ends as another", "f307 fc07", false),
    ("an unknown group", "f307 1001 f407", true),
    ("an unknown group in another", "f307 fb07 1001 fc07 f407", true),
    ("a tag of six bytes", "908080808000 05", false),
    ("a tag beyond 32 bits", "9080808010 05", false),
    ("a tag in more bytes than it needs", "908000 05", true),
    ("a wire type that is none", "0e", false),
    ("another wire type that is none", "0f", false),
    ("a length of 2^31", "0a 8080808008", false),
    ("a length in six bytes", "0a 818080808000 61", false),
    ("a number of ten bytes", "10 ffffffffffffffffff01", true),
    ("a number in more bytes than it needs", "10 858000", true),
    ("an int32 takes the low 32 bits", "28 8180808010", true),
    ("a bool with any bit", "60 8001", true),
    ("a bool with a high bit", "60 8080808010", true),
    ("a message of a oneof that comes again is merged", "4a030a0161 4a021804", true),
    ("a message of a oneof behind another member", "4a030a0161 3a0162 4a021804", true),
    ("a message in a message that ends too late", "1a02 0a05 61", false),
    ("a map's entry whose value comes twice", "32070a016110011002", true),
    ("a map's entry with another field", "32070a016110011803", true),
];
const TWO: [(&str, &str, bool); 11] = [
    ("a required field", "0807", true),
    ("no required field", "1001", false),
    ("an unlisted value of a closed enum is an unknown field", "0807 1063", true),
    ("each unlisted value of a packed run", "0807 2a03016303", true),
    ("a map's entry with an unlisted value", "0807 3a0408011063", true),
    ("a group", "0807 23080124", true),
    ("a group that comes again is merged", "0807 23080124 2324", true),
    ("a group that its message ends", "0807 230801", false),
    ("a group that a length begins", "0807 22020801", true),
    ("a required field that comes late and again", "1001 0807 0808", true),
    ("an unlisted value that is not packed", "0807 2863 2803", true),
];

fn bytes(digits: &str) -> Vec<u8> {
    from_hex(&digits.replace(' ', "")).expect("digits")
}

/// A decode case; its right answer is the message that the object encodes to.
fn message(table: &Table, of: &str, (name, digits, good): (&str, &str, bool)) -> Value {
    let processor = Processor::new(table.clone());
    let (type_idx, message) = (processor.type_by_name(of).expect("a type"), bytes(digits));
    let input = json!({ "table": to_hex(table.blob()), "type": of, "message": to_hex(&message) });
    let mut arena = Arena::with_limit(1 << 16);
    match processor.decode(type_idx, &message, &mut arena, &Limits::default()) {
        Ok(object) => {
            assert!(good, "{name} was not refused");
            let mut buffer = EncodeBuffer::new();
            let encoded = to_hex(object.encode(&mut buffer).expect("it has a form"));
            case("decode", name, FROM, input, json!({ "message": encoded }))
        }
        Err(words) => {
            assert!(!good, "{name}: {words}");
            refused("decode", name, FROM, input, words.to_string())
        }
    }
}

/// An object of `shop.Order`, and where its parts lie.
struct Sample {
    processor: Processor,
    type_idx: u32,
    bytes: Vec<u8>,
    root: usize,
}

impl Sample {
    fn new(table: &Table) -> Sample {
        Sample::of(
            table,
            "0a026964 1a080a016e12030a0163 22020a00 22021804 2a020102 32050a01611001 3a026363 5005 6001 720174 f80701",
            Limits::default().depth,
        )
    }

    /// The object of a message in digits.
    fn of(table: &Table, digits: &str, depth: u32) -> Sample {
        let processor = Processor::new(table.clone());
        let type_idx = processor.type_by_name(ORDER).expect("a type");
        let mut arena = Arena::with_limit(1 << 16);
        let limits = Limits { depth, ..Limits::default() };
        let message = bytes(digits);
        let decoded = processor.decode(type_idx, &message, &mut arena, &limits);
        let bytes = decoded.expect("a good message").bytes().to_vec();
        let root = u32_at(&bytes, 12) as usize;
        Sample { processor, type_idx, bytes, root }
    }

    fn slot(&self, number: u32) -> usize {
        let rows = self.processor.table().fields_of(self.type_idx);
        self.root + rows.iter().find(|row| row.number == number).expect("a field").slot_off as usize
    }

    /// Where the record or block lies that a slot leads to.
    fn led(&self, number: u32) -> usize {
        u32_at(&self.bytes, self.slot(number)) as usize
    }

    /// Where in a record of a type the slot of its first field lies.
    fn first_slot_of(&self, name: &str) -> usize {
        let table = self.processor.table();
        table.fields_of(table.type_by_name(name).expect("a type"))[0].slot_off as usize
    }

    fn tag(&self) -> usize {
        let rows = self.processor.table().fields_of(self.type_idx);
        self.root + rows.iter().find(|row| row.number == 7).expect("a field").oneof_off as usize
    }

    fn with(&self, at: usize, value: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    fn case(&self, name: &str, section: &str, object: &[u8], good: bool) -> Value {
        let table = to_hex(self.processor.table().blob());
        let input = json!({ "table": table, "type": ORDER, "object": to_hex(object) });
        match self.processor.verify(self.type_idx, object, Limits::default().depth) {
            Ok(object) => {
                assert!(good, "{name} was not refused");
                let mut buffer = EncodeBuffer::new();
                let encoded = to_hex(object.encode(&mut buffer).expect("it has a form"));
                case("verify", name, section, input, json!({ "message": encoded }))
            }
            Err(words) => {
                assert!(!good, "{name}: {words}");
                refused("verify", name, section, input, words.to_string())
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// An order whose item has an item, and so on: so many messages in one another, the order not counted.
fn nested(count: usize) -> Vec<u8> {
    let mut message = Vec::new();
    for depth in 0..count {
        let tag = if depth + 1 == count { 0x1a } else { 0x12 };
        let mut outer = vec![tag];
        let mut len = message.len();
        while len > 0x7f {
            outer.push(len as u8 | 0x80);
            len >>= 7;
        }
        outer.push(len as u8);
        outer.extend_from_slice(&message);
        message = outer;
    }
    message
}

/// Messages in messages: as many as are allowed, and one more.
fn depths(table: &Table) -> Vec<Value> {
    let depth = Limits::default().depth as usize;
    let mut cases = Vec::new();
    for (count, name, good) in
        [(depth, "as deep as it may be", true), (depth + 1, "a message too deep", false)]
    {
        let digits = to_hex(&nested(count));
        cases.push(message(table, ORDER, (name, &digits, good)));
        let sample = Sample::of(table, &digits, depth as u32 + 1);
        cases.push(sample.case(
            if good { "records as deep as may be" } else { "a record too deep" },
            SOUND,
            &sample.bytes,
            good,
        ));
    }
    cases
}

fn objects(table: &Table) -> Vec<Value> {
    const HEADER: &str = "flat.md, Header";
    const FREE: &str = "flat.md, What is kept free";
    let sample = Sample::new(table);
    let len = sample.bytes.len() as u32;
    let at = |number| sample.slot(number);
    let with = |at: usize, value: u32| sample.with(at, value);
    let beyond = len.next_multiple_of(8);
    let (unknown, entry) = (u32_at(&sample.bytes, sample.root) as usize, sample.led(6) + 8);
    let key = entry + sample.first_slot_of("shop.Order.CountsEntry");
    let item = sample.led(3) + sample.first_slot_of("shop.Item");
    let both = |first: (usize, u32), second: (usize, u32)| {
        let mut bytes = sample.with(first.0, first.1);
        bytes[second.0..second.0 + 4].copy_from_slice(&second.1.to_le_bytes());
        bytes
    };
    let bad = [
        ("a header cut off", HEADER, sample.bytes[..31].to_vec()),
        ("other magic", HEADER, with(0, 0)),
        ("version 1", HEADER, with(4, 1)),
        ("a flag", FREE, with(4, 2 | 1 << 16)),
        ("a length beyond the memory", HEADER, with(8, len + 1)),
        ("a length shorter than the header", HEADER, with(8, 31)),
        ("a root in the header", SOUND, with(12, 24)),
        ("a root that is not aligned", SOUND, with(12, sample.root as u32 + 4)),
        ("a root that leads out", SOUND, with(12, len.next_multiple_of(8) + 8)),
        ("another type's fingerprint", SOUND, with(16, u32_at(&sample.bytes, 16) ^ 1)),
        ("a reserved word of the header", FREE, with(24, 1)),
        ("the other reserved word", FREE, with(28, 1)),
        (
            "a presence bit beyond the last field",
            SOUND,
            with(sample.root + 4, u32_at(&sample.bytes, sample.root + 4) | 1 << 31),
        ),
        ("a tag of no member", SOUND, with(sample.tag(), 6)),
        ("a tag of a member that is absent", SOUND, with(sample.tag(), 8)),
        ("no tag though a member is present", SOUND, with(sample.tag(), 0)),
        ("a span that leads out", SOUND, with(at(1), len)),
        ("a span longer than the object", SOUND, with(at(1) + 4, len)),
        ("the highest bit of a span's length", FREE, with(at(1) + 4, 1 << 31 | 2)),
        ("a record that is not aligned", FREE, with(at(3), sample.led(3) as u32 + 1)),
        ("a record in the header", SOUND, with(at(3), 0)),
        ("a record that leads out", SOUND, with(at(3), len.next_multiple_of(8))),
        ("a block that is not aligned", FREE, with(at(4), sample.led(4) as u32 + 4)),
        (
            "a count above the capacity",
            SOUND,
            with(sample.led(4), u32_at(&sample.bytes, sample.led(4) + 4) + 1),
        ),
        ("a capacity that leads out", SOUND, with(sample.led(4) + 4, 1 << 20)),
        ("a capacity that overflows", SOUND, with(sample.led(5) + 4, u32::MAX)),
        ("unknown fields that lead out", SOUND, with(sample.root, len.next_multiple_of(8))),
        ("unknown fields in the header", SOUND, with(sample.root, 8)),
        ("an unknown field whose span leads out", SOUND, with(unknown + 8, len)),
        ("a second presence bit of a oneof", SOUND, {
            let rows = sample.processor.table().fields_of(sample.type_idx);
            let cash = rows.iter().position(|row| row.number == 8).expect("a field");
            with(sample.root + 4, u32_at(&sample.bytes, sample.root + 4) | 1 << cash)
        }),
        ("a block in the header", SOUND, with(at(4), 8)),
        ("a block that leads out", SOUND, with(at(4), beyond)),
        ("a list of numbers in the header", SOUND, with(at(5), 16)),
        ("an element whose span leads out", SOUND, with(sample.led(14) + 8, len)),
        ("a map's key whose span leads out", SOUND, with(key, len)),
        ("a string in a record that leads out", SOUND, with(item + 4, len)),
        ("an empty span that begins beyond the end", SOUND, both((at(7), len + 1), (at(7) + 4, 0))),
        ("parts that are longer together than the object", SOUND, both((at(7), 32), (at(7) + 4, len - 32))),
        ("an element that is not UTF-8", SOUND, {
            let mut bytes = sample.bytes.clone();
            bytes[u32_at(&sample.bytes, sample.led(14) + 8) as usize] = 0xff;
            bytes
        }),
        ("a map's key that is not UTF-8", SOUND, {
            let mut bytes = sample.bytes.clone();
            bytes[u32_at(&sample.bytes, key) as usize] = 0xff;
            bytes
        }),
        ("a string that is not UTF-8", SOUND, {
            let mut bytes = sample.bytes.clone();
            bytes[sample.led(1)] = 0xff;
            bytes
        }),
        ("a record that contains itself", SOUND, {
            let table = sample.processor.table();
            let item = table.type_by_name("shop.Item").expect("a type");
            let child = table.fields_of(item)[1].slot_off as usize;
            with(sample.led(3) + child, sample.led(3) as u32)
        }),
    ];
    let mut absent = sample.with(at(2), 77);
    absent[at(2) + 4] = 1;
    let moved = [&sample.bytes[..], &[0; 24]].concat();
    let good = [
        ("an object", SOUND, sample.bytes.clone()),
        ("an absent field's slot means nothing", "flat.md, Records", absent),
        ("memory behind the object", HEADER, moved),
        ("a bool that is neither 0 nor 1", "flat.md, Records", {
            let mut bytes = sample.bytes.clone();
            bytes[at(12)] = 2;
            bytes
        }),
        ("an enum's number that is not listed", "flat.md, Records", with(at(10), 99)),
        ("an empty span at the end", "flat.md, Records", both((at(7), len), (at(7) + 4, 0))),
    ];
    let good = good.iter().map(|(name, section, object)| sample.case(name, section, object, true));
    let bad = bad.iter().map(|(name, section, object)| sample.case(name, section, object, false));
    good.chain(bad).collect()
}

#[test]
fn objects_are_as_written_down() {
    let (three, two) = (schemas::three(), schemas::two());
    let mut cases: Vec<Value> = THREE.into_iter().map(|each| message(&three, ORDER, each)).collect();
    cases.extend(TWO.into_iter().map(|each| message(&two, "old.Order", each)));
    cases.extend(objects(&three));
    cases.extend(depths(&three));
    hold("objects.json", &cases);
}
