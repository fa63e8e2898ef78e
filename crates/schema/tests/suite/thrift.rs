//! Thrift IDL: what it becomes, and how its errors read.

use std::path::{Path, PathBuf};
use tollfree_schema::{Field, Kind, Label, Message, Role, Schema, SchemaError};

fn read(text: &str) -> Result<Schema, SchemaError> {
    Schema::from_thrift("a.thrift", text)
}

fn message<'s>(schema: &'s Schema, name: &str) -> &'s Message {
    &schema.messages[schema.message_by_name(name).unwrap_or_else(|| panic!("no {name}"))]
}

fn field<'s>(schema: &'s Schema, of: &str, name: &str) -> &'s Field {
    message(schema, of).fields.iter().find(|field| field.name == name).unwrap()
}

fn bits(field: &Field) -> Option<i64> {
    field.default.as_ref().map(|bytes| i64::from_le_bytes(bytes.as_slice().try_into().unwrap()))
}

#[test]
fn fields_of_every_type() {
    let schema = read(
        "namespace * x
        typedef i64 Id  typedef list<Id> Ids
        enum Color { RED = 1, GREEN, BLUE = -7, CYAN }
        struct Inner { 1: i32 a (key = 'value'); }
        struct All {
          1: bool b, 2: byte y, 3: i8 s, 4: i16 h, 5: i32 i, 6: Id l, 7: double d, 8: string t, 9: binary n,
          10: Inner inner, 11: Color color, 12: Ids ids, 13: set<string> set, 14: map<string, Inner> map,
          15: required i32 must, 16: optional i32 may, 17: required list<i8> sent, 32767: i32 last
        }",
    )
    .unwrap();
    let expected = [
        ("b", Kind::Bool, Label::Explicit),
        ("y", Kind::I8, Label::Explicit),
        ("s", Kind::I8, Label::Explicit),
        ("h", Kind::I16, Label::Explicit),
        ("i", Kind::Int32, Label::Explicit),
        ("l", Kind::Int64, Label::Explicit),
        ("d", Kind::Double, Label::Explicit),
        ("t", Kind::String, Label::Explicit),
        ("n", Kind::Bytes, Label::Explicit),
        ("inner", Kind::Message, Label::Explicit),
        ("color", Kind::Enum, Label::Explicit),
        ("ids", Kind::Int64, Label::List),
        ("set", Kind::String, Label::List),
        ("map", Kind::Message, Label::Map),
        ("must", Kind::Int32, Label::Required),
        ("may", Kind::Int32, Label::Explicit),
        ("sent", Kind::I8, Label::List),
        ("last", Kind::Int32, Label::Explicit),
    ];
    let all = message(&schema, "a.All");
    let found: Vec<_> =
        all.fields.iter().map(|field| (field.name.as_str(), field.kind, field.label)).collect();
    assert_eq!(found, expected);
    let of_all = |name| field(&schema, "a.All", name);
    assert!(of_all("t").utf8 && of_all("set").utf8 && !of_all("n").utf8);
    assert!(of_all("set").set && !of_all("ids").set);
    assert!(of_all("sent").sent && !of_all("ids").sent);
    let numbers: Vec<_> =
        schema.enums[0].values.iter().map(|value| (value.name.as_str(), value.number)).collect();
    assert_eq!(numbers, [("RED", 1), ("GREEN", 2), ("BLUE", -7), ("CYAN", -6)]);
    schema.compile().unwrap();
}

#[test]
fn containers_in_containers() {
    let schema = read(
        "struct A { 1: list<list<i64>> lists, 2: map<list<i32>, set<map<string, A>>> map, 3: list<list<i64>> same }",
    )
    .unwrap();
    let lists = field(&schema, "a.A", "lists");
    assert_eq!((lists.kind, lists.label), (Kind::Message, Label::List));
    let inner = &schema.messages[lists.target_idx.unwrap()];
    assert_eq!((inner.name.as_str(), inner.role), ("box<list<i64>>", Role::Box));
    assert_eq!((inner.fields[0].kind, inner.fields[0].label), (Kind::Int64, Label::List));
    assert_eq!(field(&schema, "a.A", "same").target_idx, lists.target_idx, "one box for one type");
    let map = field(&schema, "a.A", "map");
    let entry = &schema.messages[map.target_idx.unwrap()];
    assert_eq!(entry.name, "map<list<i32>,set<map<string,a.A>>>");
    assert_eq!((entry.fields[0].kind, entry.fields[0].label), (Kind::Int32, Label::List));
    let value = &entry.fields[1];
    assert!(value.set && value.label == Label::List);
    let boxed = &schema.messages[value.target_idx.unwrap()];
    assert_eq!((boxed.role, boxed.fields[0].label), (Role::Box, Label::Map));
    schema.compile().unwrap();
}

#[test]
fn services_become_structs() {
    let schema = read(
        "exception Failure { 1: string why }
        service Base { void ping() }
        service Greeter extends Base {
          string greet(1: string name = 'you', 2: required i32 n) throws (1: Failure failure)
          oneway void note(1: i32 n)
        }",
    )
    .unwrap();
    let greeter = &schema.services[1];
    assert_eq!(greeter.name, "a.Greeter");
    let methods: Vec<_> = greeter
        .methods
        .iter()
        .map(|m| {
            let name = |idx: usize| schema.messages[idx].name.as_str();
            (m.name.as_str(), name(m.input_idx), name(m.output_idx), m.oneway)
        })
        .collect();
    assert_eq!(
        methods,
        [
            ("ping", "a.Base.ping_args", "a.Base.ping_result", false),
            ("greet", "a.Greeter.greet_args", "a.Greeter.greet_result", false),
            ("note", "a.Greeter.note_args", "a.Greeter.note_result", true),
        ]
    );
    let result = message(&schema, "a.Greeter.greet_result");
    let numbers: Vec<_> = result.fields.iter().map(|f| (f.number, f.name.as_str())).collect();
    assert_eq!(numbers, [(0, "success"), (1, "failure")]);
    // As in Apache's compiler, arguments are neither required nor optional.
    assert_eq!(field(&schema, "a.Greeter.greet_args", "n").label, Label::Explicit);
    assert_eq!(message(&schema, "TApplicationException").role, Role::Exception);
    schema.compile().unwrap();
}

#[test]
fn defaults() {
    let schema = read(
        "const i32 FIVE = 5  const i32 ALSO = FIVE
        enum Color { RED = 1, BLUE = 4 }
        union U { 1: i32 a }
        struct A {
          1: i32 a = ALSO, 2: bool b = true, 3: bool c = 0, 4: double d = 1.5, 5: double e = 2, 6: string s = 'x\"y',
          7: Color f = Color.BLUE, 8: Color g = 9, 9: i64 h = -0x10, 10: list<i32> l = [], 11: i32 m = Color.RED
          12: i8 n = -128, 13: map<i32, i32> o = {}, 14: binary p = \"z\"
        }",
    )
    .unwrap();
    let of = |name| field(&schema, "a.A", name);
    let found: Vec<_> = ["a", "b", "c", "f", "g", "h", "m", "n"].map(|name| bits(of(name)).unwrap()).to_vec();
    assert_eq!(found, [5, 1, 0, 4, 9, -16, 1, -128]);
    assert_eq!(of("d").default, Some(1.5f64.to_le_bytes().to_vec()));
    assert_eq!(of("e").default, Some(2f64.to_le_bytes().to_vec()));
    assert_eq!(of("s").default.as_deref(), Some(&b"x\"y"[..]));
    assert_eq!(of("p").default.as_deref(), Some(&b"z"[..]));
    assert_eq!((&of("l").default, &of("o").default), (&None, &None));
    schema.compile().unwrap();
}

#[test]
fn errors_name_file_and_line() {
    let cases = [
        ("struct A {\n 1: i32 a,\n 2: Missing b }", "a.thrift:3: type Missing is not defined"),
        ("struct A {\n -1: i32 a }", "a.thrift:2: field a has the id -1; only ids from 1 are supported"),
        ("struct A {\n 0: i32 a }", "a.thrift:2: field a has the id 0; only ids from 1 are supported"),
        ("struct A {\n 1: i32 a\n 1: i32 b }", "a.thrift:3: b and a have the same id or name"),
        ("struct A {\n 1: i32 a\n 2: i32 a }", "a.thrift:2: a and a have the same id or name"),
        ("struct A {\n 1: uuid a }", "a.thrift:2: fields of type uuid are not supported"),
        ("struct A {\n 1: i8 a = 200 }", "a.thrift:2: the default is not a number of 8 bits"),
        ("struct A {\n 1: i32 a = 'x' }", "a.thrift:2: the default is not of the field's type"),
        ("struct A {\n 1: i32 a = B }", "a.thrift:2: the default is not a constant that fits the field"),
        (
            "struct A {\n 1: list<i32> a = [1] }",
            "a.thrift:2: defaults of structs, and of containers with elements, are not supported",
        ),
        (
            "const i32 A = B\nconst i32 B = A\nstruct S { 1: i32 a = A }",
            "a.thrift:3: the default's constant leads back to itself",
        ),
        ("typedef B A\n\ntypedef A B\nstruct S { 1: A a }", "a.thrift:1: typedef A leads back to itself"),
        ("struct A {}\n\nstruct A {}", "a.thrift:1: A is defined twice in this file"),
        ("enum A {\n X = 1,\n Y = 4294967296 }", "a.thrift:3: 4294967296 does not fit into 32 bits"),
        (
            "service A {\n void f(),\n void f() }",
            "a.thrift:2: function f is defined twice, here or in a base service",
        ),
        ("struct B {}\nservice A {\n void f() throws (1: B b) }", "a.thrift:3: b is thrown and no exception"),
        ("service A {\n oneway i32 f() }", "a.thrift:2: a oneway function neither returns nor throws"),
        ("\nservice A extends B {}", "a.thrift:2: the service that it extends is not defined"),
        ("service A extends B {}\nservice B extends A {}", "a.thrift:1: the service extends itself"),
        ("struct A { 1: b.B b }", "a.thrift:1: b.B is in no included file"),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text).unwrap_err().to_string(), expected, "{text}");
    }
    for (text, line) in [("struct A {\n 1 i32 a }", 2), ("struct A {\n\n 70000: i32 a }", 3), ("bogus", 1)] {
        let error = read(text).unwrap_err();
        assert!(matches!(&error, SchemaError::Thrift { line: at, .. } if *at == line), "{text}: {error}");
    }
    // The parser recurses: nesting is bounded before it sees the text.
    let deep = format!("\nstruct A {{ 1: {}i32{} a }}", "list<".repeat(100_000), ">".repeat(100_000));
    let error = read(&deep).unwrap_err().to_string();
    assert_eq!(error, "a.thrift:2: more than 64 brackets inside one another");
    let allowed = format!("struct A {{ 1: {}i32{} a }}", "list<".repeat(60), ">".repeat(60));
    read(&allowed).unwrap().compile().unwrap();
}

/// A directory of its own for a test's files, removed in the end.
struct Dir(PathBuf);

impl Dir {
    fn with(name: &str, files: &[(&str, &str)]) -> Dir {
        let dir = std::env::temp_dir().join(format!("tollfree-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = dir.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Dir(dir)
    }

    fn read(&self, dirs: &[&Path]) -> Result<Schema, SchemaError> {
        Schema::from_thrift_file(&self.0.join("main.thrift"), dirs)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn includes_beside_and_in_directories() {
    let dir = Dir::with(
        "includes",
        &[
            (
                "main.thrift",
                "include 'sub/base.thrift'\ninclude \"far.thrift\"\nstruct A { 1: base.B b, 2: far.Id id, 3: far.Color c = far.Color.BLUE, 4: i32 n = far.N }\nservice S extends far.T {}",
            ),
            ("sub/base.thrift", "include '../other.thrift'\nstruct B { 1: other.O o }"),
            ("other.thrift", "struct O {}"),
            (
                "dirs/far.thrift",
                "typedef i64 Id\nconst i32 N = 8\nenum Color { RED, BLUE = 3 }\nservice T { void t() }",
            ),
        ],
    );
    let schema = dir.read(&[&dir.0.join("dirs")]).unwrap();
    assert_eq!(field(&schema, "main.A", "id").kind, Kind::Int64);
    assert_eq!(
        (bits(field(&schema, "main.A", "c")), bits(field(&schema, "main.A", "n"))),
        (Some(3), Some(8))
    );
    let target = field(&schema, "main.A", "b").target_idx.unwrap();
    assert_eq!(schema.messages[target].name, "base.B");
    assert_eq!(schema.services[0].methods[0].name, "t");
    schema.compile().unwrap();
    let error = dir.read(&[]).unwrap_err().to_string();
    assert!(
        error.ends_with("main.thrift:2: far.thrift is neither beside this file nor in an include directory")
    );
}

#[test]
fn includes_that_go_round_or_are_missing() {
    let dir = Dir::with(
        "circle",
        &[("main.thrift", "include 'b.thrift'"), ("b.thrift", "\ninclude 'main.thrift'")],
    );
    let error = dir.read(&[]).unwrap_err().to_string();
    assert!(
        error.ends_with("b.thrift:2: main.thrift includes this file, directly or by way of others"),
        "{error}"
    );
    let missing = Schema::from_thrift_file(&dir.0.join("none.thrift"), &[]).unwrap_err();
    assert!(matches!(missing, SchemaError::Unreadable { .. }), "{missing}");
    let twice = Dir::with(
        "twice",
        &[
            ("main.thrift", "include 'x/b.thrift'\ninclude 'y/b.thrift'"),
            ("x/b.thrift", "struct X {}"),
            ("y/b.thrift", "struct Y {}"),
        ],
    );
    let error = twice.read(&[]).unwrap_err().to_string();
    assert!(error.ends_with("main.thrift:2: two of the included files are called b"), "{error}");
}
