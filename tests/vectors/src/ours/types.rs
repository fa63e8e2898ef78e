//! Tables, fingerprints and objects.

use std::ops::Range;

use serde_json::{Value, json};
use tollfree_layout::description::{Description, method_fingerprint};
use tollfree_layout::table::Table;
use tollfree_processor::{Arena, EncodeBuffer, Limits, Processor};
use tollfree_vectors::to_hex;

use crate::{Answer, Question};

/// Longest object, in bytes.
const LONGEST: usize = 1 << 20;

fn load(question: &Question) -> Result<Table, String> {
    Table::load(&question.bytes("table")?).map_err(|error| error.to_string())
}

fn engine(question: &Question) -> Result<(Processor, u32), String> {
    let processor = Processor::new(load(question)?);
    let name = question.text("type")?;
    let type_idx = processor.type_by_name(name).ok_or_else(|| format!("the table has no type {name}"))?;
    Ok((processor, type_idx))
}

fn digits(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}

pub(crate) fn table(question: &Question) -> Answer {
    let table = load(question)?;
    let types: Vec<&str> = table.types().iter().map(|row| table.text(row.name)).collect();
    let fields = |type_idx: usize| {
        let rows = table.fields_of(type_idx as u32).iter();
        rows.map(|row| json!(format!("{} {}", row.number, table.text(row.name)))).collect::<Vec<Value>>()
    };
    let fields: Vec<Value> = (0..types.len()).flat_map(fields).collect();
    Ok(json!({ "fingerprint": digits(table.fingerprint()), "types": types, "fields": fields }))
}

pub(crate) fn fingerprint(question: &Question) -> Answer {
    let (processor, type_idx) = engine(question)?;
    Ok(json!({ "fingerprint": digits(processor.fingerprint(type_idx)) }))
}

pub(crate) fn describe(question: &Question) -> Answer {
    let bytes = question.bytes("description")?;
    let Description { head, request, reply } =
        Description::read(&bytes).map_err(|error| error.to_string())?;
    let loaded = |place: Range<usize>, type_idx: u32| {
        let table = Table::load(&bytes[place]).map_err(|error| error.to_string())?;
        let row =
            table.types().get(type_idx as usize).ok_or_else(|| format!("a table has no type {type_idx}"))?;
        let name = table.text(row.name).to_owned();
        Ok::<_, String>((name, table.type_fingerprint(type_idx)))
    };
    let (request, of_request) = loaded(request, head.request_idx.get())?;
    let (reply, of_reply) = loaded(reply, head.reply_idx.get())?;
    Ok(json!({
        "request": request,
        "reply": reply,
        "accepts": head.accepts,
        "sends": head.sends,
        "fingerprint": digits(method_fingerprint(of_request, of_reply)),
    }))
}

pub(crate) fn decode(question: &Question) -> Answer {
    let (processor, type_idx) = engine(question)?;
    let mut arena = Arena::with_limit(LONGEST);
    let object = processor.decode(type_idx, &question.bytes("message")?, &mut arena, &Limits::default());
    Ok(json!({ "object": to_hex(object.map_err(|error| error.to_string())?.bytes()) }))
}

pub(crate) fn verify(question: &Question) -> Answer {
    let (processor, type_idx) = engine(question)?;
    let bytes = question.bytes("object")?;
    let object =
        processor.verify(type_idx, &bytes, Limits::default().depth).map_err(|error| error.to_string())?;
    let mut buffer = EncodeBuffer::new();
    Ok(json!({ "message": to_hex(object.encode(&mut buffer).map_err(|error| error.to_string())?) }))
}
