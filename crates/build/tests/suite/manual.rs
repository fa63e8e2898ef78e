//! Services that are said in a build script, without a `.proto` file.

use tollfree_build::manual::{Builder, Method, MethodBuilder, Service};

fn method() -> MethodBuilder {
    Method::builder().name("hello").route_name("Hello").input_type("crate::Ask").output_type("crate::Answer")
}

fn compiled(service: Service) -> Result<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let done = Builder::new().out_dir(directory.path()).compile(&[service]);
    done.map_err(|error| error.to_string())?;
    Ok(std::fs::read_to_string(directory.path().join("greeter.v1.Greeter.rs")).unwrap())
}

fn greeter(method: Method) -> Service {
    Service::builder().name("Greeter").package("greeter.v1").comment(" Greets.").method(method).build()
}

#[test]
fn a_service_is_generated_as_of_a_proto() {
    let text = compiled(greeter(method().comment(" Says hello.").deprecated().build())).unwrap();
    for part in [
        "pub mod greeter_client",
        "pub trait Greeter",
        "\"/greeter.v1.Greeter/Hello\"",
        "impl tonic::IntoRequest<crate::Ask>",
        "tonic::Response<crate::Answer>",
        "/// Greets.",
        "/// Says hello.",
        "#[deprecated]",
        "::tollfree::direct::Prost",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let text = compiled(greeter(method().client_streaming().codec_path("crate::Json").build())).unwrap();
    assert!(text.contains("crate::Json::default()") && !text.contains("::tollfree::direct::Prost"), "{text}");
    assert!(text.contains("impl tonic::IntoStreamingRequest<Message = crate::Ask>"), "{text}");
}

#[test]
fn what_is_missing_is_said() {
    let two = Service::builder().name("Greeter").package("greeter.v1");
    let two = two.method(method().build()).method(method().name("bye").codec_path("crate::Json").build());
    for (service, words) in [
        (Service::builder().build(), "it needs a name"),
        (greeter(Method::builder().build()), "needs an input_type"),
        (greeter(method().name("no name").build()), "a method needs a name"),
        (greeter(method().route_name("").build()), "method hello needs a route_name"),
        (greeter(method().input_type("::::").build()), "not a type"),
        (greeter(method().codec_path("1").build()), "not a type"),
        (two.build(), "several codecs"),
    ] {
        let error = compiled(service).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}
