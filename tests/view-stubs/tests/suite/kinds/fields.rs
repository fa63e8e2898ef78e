//! `t3.All` by hand, with each field in its turn: as prost's type, read by views, built by builders.

use tollfree_processor::BuildError;
use tollfree_view_stubs::kinds::prost as theirs;
use tollfree_view_stubs::kinds::t3;

/// A message in which each field has a value, other than its default and than that of every other field.
pub(crate) fn full(inner: bool) -> theirs::t3::All {
    let inner = || inner.then(|| Box::new(full(false)));
    theirs::t3::All {
        f_double: 1.5,
        f_float: -2.5,
        f_int64: i64::MIN,
        f_uint64: u64::MAX,
        f_int32: -5,
        f_fixed64: 6 << 40,
        f_fixed32: 7 << 20,
        f_bool: true,
        f_string: "nine".into(),
        f_message: inner(),
        f_bytes: vec![12, 0, 255],
        f_uint32: 13,
        f_enum: -5,
        f_sfixed32: -15,
        f_sfixed64: -16,
        f_sint32: -17,
        f_sint64: -18,
        r_double: vec![21.0, f64::INFINITY],
        r_float: vec![22.0, -0.0],
        r_int64: vec![23, -23],
        r_uint64: vec![24; 70],
        r_int32: vec![25, i32::MIN],
        r_fixed64: vec![26],
        r_fixed32: vec![27, 28],
        r_bool: vec![true, false, true],
        r_string: vec!["thirty".into(), String::new(), "ü".into()],
        r_message: inner().map(|it| vec![*it, theirs::t3::All::default()]).unwrap_or_default(),
        r_bytes: vec![vec![], vec![33]],
        r_uint32: vec![33, u32::MAX],
        r_enum: vec![1, 0, -5, 77],
        r_sfixed32: vec![-35],
        r_sfixed64: vec![36],
        r_sint32: vec![37, -37],
        r_sint64: vec![-38],
        u_int32: vec![41],
        u_fixed64: vec![42],
        m_string: [("a".to_owned(), 51), (String::new(), 0)].into(),
        m_message: [(-52, inner().map(|it| *it).unwrap_or_default())].into(),
        m_bool: [(false, vec![53])].into(),
        m_enum: [(54, 1), (55, 99)].into(),
        o_int32: Some(0),
        o_string: Some(String::new()),
        choice: Some(theirs::t3::all::Choice::CString("c".into())),
        far: 3000,
        farther: "500000000".into(),
    }
}

/// What views read, as prost's type.
pub(crate) fn read(view: t3::AllView<'_>) -> theirs::t3::All {
    use t3::all::Choice;
    let numbers = |view: tollfree_processor::typed::ListView<'_, _>| {
        view.iter().map(|value: t3::Color| value.0).collect::<Vec<i32>>()
    };
    theirs::t3::All {
        f_double: view.f_double(),
        f_float: view.f_float(),
        f_int64: view.f_int64(),
        f_uint64: view.f_uint64(),
        f_int32: view.f_int32(),
        f_fixed64: view.f_fixed64(),
        f_fixed32: view.f_fixed32(),
        f_bool: view.f_bool(),
        f_string: view.f_string().into(),
        f_message: view.f_message().map(|view| Box::new(read(view))),
        f_bytes: view.f_bytes().into(),
        f_uint32: view.f_uint32(),
        f_enum: view.f_enum().into(),
        f_sfixed32: view.f_sfixed32(),
        f_sfixed64: view.f_sfixed64(),
        f_sint32: view.f_sint32(),
        f_sint64: view.f_sint64(),
        r_double: view.r_double().iter().collect(),
        r_float: view.r_float().iter().collect(),
        r_int64: view.r_int64().iter().collect(),
        r_uint64: view.r_uint64().iter().collect(),
        r_int32: view.r_int32().iter().collect(),
        r_fixed64: view.r_fixed64().iter().collect(),
        r_fixed32: view.r_fixed32().iter().collect(),
        r_bool: view.r_bool().iter().collect(),
        r_string: view.r_string().iter().map(str::to_owned).collect(),
        r_message: view.r_message().iter().map(read).collect(),
        r_bytes: view.r_bytes().iter().map(<[u8]>::to_vec).collect(),
        r_uint32: view.r_uint32().iter().collect(),
        r_enum: numbers(view.r_enum()),
        r_sfixed32: view.r_sfixed32().iter().collect(),
        r_sfixed64: view.r_sfixed64().iter().collect(),
        r_sint32: view.r_sint32().iter().collect(),
        r_sint64: view.r_sint64().iter().collect(),
        u_int32: view.u_int32().iter().collect(),
        u_fixed64: view.u_fixed64().iter().collect(),
        m_string: view.m_string().iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        m_message: view.m_message().iter().map(|(key, value)| (key, read(value))).collect(),
        m_bool: view.m_bool().iter().map(|(key, value)| (key, value.to_vec())).collect(),
        m_enum: view.m_enum().iter().map(|(key, value)| (key, value.0)).collect(),
        o_int32: view.o_int32_opt(),
        o_string: view.o_string_opt().map(str::to_owned),
        choice: match view.choice() {
            Choice::NotSet => None,
            Choice::CInt32(value) => Some(theirs::t3::all::Choice::CInt32(value)),
            Choice::CString(value) => Some(theirs::t3::all::Choice::CString(value.into())),
            Choice::CMessage(value) => Some(theirs::t3::all::Choice::CMessage(Box::new(read(value)))),
            Choice::CEnum(value) => Some(theirs::t3::all::Choice::CEnum(value.0)),
            Choice::CDouble(value) => Some(theirs::t3::all::Choice::CDouble(value)),
        },
        far: view.far(),
        farther: view.farther().into(),
    }
}

/// Builds what prost's type holds.
pub(crate) fn put(mut to: t3::AllMut<'_>, from: &theirs::t3::All) -> Result<(), BuildError> {
    use theirs::t3::all::Choice;
    to.set_f_double(from.f_double)?;
    to.set_f_float(from.f_float)?;
    to.set_f_int64(from.f_int64)?;
    to.set_f_uint64(from.f_uint64)?;
    to.set_f_int32(from.f_int32)?;
    to.set_f_fixed64(from.f_fixed64)?;
    to.set_f_fixed32(from.f_fixed32)?;
    to.set_f_bool(from.f_bool)?;
    to.set_f_string(&from.f_string)?;
    if let Some(from) = &from.f_message {
        put(to.f_message_mut()?, from)?;
    }
    to.set_f_bytes(&from.f_bytes)?;
    to.set_f_uint32(from.f_uint32)?;
    to.set_f_enum(t3::Color(from.f_enum))?;
    to.set_f_sfixed32(from.f_sfixed32)?;
    to.set_f_sfixed64(from.f_sfixed64)?;
    to.set_f_sint32(from.f_sint32)?;
    to.set_f_sint64(from.f_sint64)?;
    to.r_double_mut()?.extend(from.r_double.iter().copied())?;
    to.r_float_mut()?.extend(from.r_float.iter().copied())?;
    to.r_int64_mut()?.extend(from.r_int64.iter().copied())?;
    to.r_uint64_mut()?.extend(from.r_uint64.iter().copied())?;
    to.r_int32_mut()?.extend(from.r_int32.iter().copied())?;
    to.r_fixed64_mut()?.extend(from.r_fixed64.iter().copied())?;
    to.r_fixed32_mut()?.extend(from.r_fixed32.iter().copied())?;
    to.r_bool_mut()?.extend(from.r_bool.iter().copied())?;
    to.r_string_mut()?.extend(from.r_string.iter().map(String::as_str))?;
    for from in &from.r_message {
        put(to.r_message_mut()?.push_new()?, from)?;
    }
    to.r_bytes_mut()?.extend(from.r_bytes.iter().map(Vec::as_slice))?;
    to.r_uint32_mut()?.extend(from.r_uint32.iter().copied())?;
    to.r_enum_mut()?.extend(from.r_enum.iter().map(|number| t3::Color(*number)))?;
    to.r_sfixed32_mut()?.extend(from.r_sfixed32.iter().copied())?;
    to.r_sfixed64_mut()?.extend(from.r_sfixed64.iter().copied())?;
    to.r_sint32_mut()?.extend(from.r_sint32.iter().copied())?;
    to.r_sint64_mut()?.extend(from.r_sint64.iter().copied())?;
    to.u_int32_mut()?.extend(from.u_int32.iter().copied())?;
    to.u_fixed64_mut()?.extend(from.u_fixed64.iter().copied())?;
    for (key, value) in &from.m_string {
        to.m_string_mut()?.insert(key, *value)?;
    }
    for (key, value) in &from.m_message {
        put(to.m_message_mut()?.insert_new(*key)?, value)?;
    }
    for (key, value) in &from.m_bool {
        to.m_bool_mut()?.insert(*key, value)?;
    }
    for (key, value) in &from.m_enum {
        to.m_enum_mut()?.insert(*key, t3::Color(*value))?;
    }
    if let Some(value) = from.o_int32 {
        to.set_o_int32(value)?;
    }
    if let Some(value) = &from.o_string {
        to.set_o_string(value)?;
    }
    match &from.choice {
        Some(Choice::CInt32(value)) => to.set_c_int32(*value)?,
        Some(Choice::CString(value)) => to.set_c_string(value)?,
        Some(Choice::CMessage(value)) => put(to.c_message_mut()?, value)?,
        Some(Choice::CEnum(value)) => to.set_c_enum(t3::Color(*value))?,
        Some(Choice::CDouble(value)) => to.set_c_double(*value)?,
        None => {}
    }
    to.set_far(from.far)?;
    to.set_farther(&from.farther)
}
