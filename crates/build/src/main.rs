//! `protoc-gen-tollfree`: reads a `CodeGeneratorRequest` on standard input, writes a `CodeGeneratorResponse` to standard
//! output. What is wrong with a proto or a parameter is said in the response, as protoc and buf want it; what is wrong with
//! the request itself on standard error, with status 1.
#![forbid(unsafe_code)]

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

const HELP: &str = "\
protoc-gen-tollfree is run by protoc or buf:

    protoc --plugin=protoc-gen-tollfree --tollfree_out=src/generated --tollfree_opt=no_server greeter.proto

Options, separated by commas, as tollfree_build::Builder has them:
    no_client, no_server, no_transport, compile_well_known_types, own_streaming, use_arc_self,
    generate_default_stubs,
    extern_path=.package=::path, type_attribute=path=text, message_attribute=path=text, enum_attribute=path=text,
    field_attribute=path=text, bytes=path, btree_map=path, boxed=path, skip_debug=path, disable_comments=path,
    proto_path=path, codec_path=path
";

fn main() -> ExitCode {
    if let Some(argument) = std::env::args().nth(1) {
        let known = matches!(argument.as_str(), "-h" | "--help");
        let (text, code) = if known { (HELP, ExitCode::SUCCESS) } else { (HELP, ExitCode::FAILURE) };
        eprint!("{text}");
        return code;
    }
    let mut request = Vec::new();
    let answered = std::io::stdin()
        .lock()
        .read_to_end(&mut request)
        .map_err(|error| format!("reading the request: {error}"))
        .and_then(|_| tollfree_build::answer(&request))
        .and_then(|response| {
            std::io::stdout().write_all(&response).map_err(|error| format!("writing the response: {error}"))
        });
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("protoc-gen-tollfree: {error}");
            ExitCode::FAILURE
        }
    }
}
