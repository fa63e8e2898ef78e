//! grpcurl and ghz against the TCP side of our server, and of a gateway in front of it; they know nothing of it but what reflection says.

use serde_json::{Value, json};

use crate::foreign::{self, Lab, Said};

/// The ways to our server, in the order of a check's outcomes.
pub(crate) const WAYS: [&str; 4] = ["http", "https", "gateway, http", "gateway, https"];

/// One check with one tool, by each of [`WAYS`].
pub(crate) struct Check {
    pub(crate) tool: &'static str,
    pub(crate) what: &'static str,
    pub(crate) outcomes: [Result<(), String>; WAYS.len()],
}

const SERVICE: &str = "grpc.testing.TestService";

/// Calls that ghz makes in a check.
const UNARY_COUNT: u64 = 4_000;
const STREAM_COUNT: u64 = 1_000;

struct Server<'a> {
    lab: &'a Lab,
    port: u16,
    tls: bool,
}

impl Server<'_> {
    fn address(&self) -> String {
        format!("localhost:{}", self.port)
    }

    fn ca(&self) -> String {
        self.lab.path("ca.pem").display().to_string()
    }

    /// Options of grpcurl go before the address, commands after it.
    async fn grpcurl(&self, options: &[&str], command: &[&str]) -> Result<Said, String> {
        let mut args: Vec<String> = match self.tls {
            true => vec!["-cacert".to_owned(), self.ca()],
            false => vec!["-plaintext".to_owned()],
        };
        args.extend(options.iter().map(|&arg| arg.to_owned()));
        args.push(self.address());
        args.extend(command.iter().map(|&arg| arg.to_owned()));
        foreign::run(&self.lab.tools.join("grpcurl"), args).await
    }

    /// A call that succeeds; the responses.
    async fn call(&self, method: &str, requests: &str) -> Result<Vec<Value>, String> {
        let said = self.grpcurl(&["-d", requests], &[&format!("{SERVICE}/{method}")]).await?;
        if said.code != Some(0) {
            return Err(said.final_status());
        }
        let responses = serde_json::Deserializer::from_str(&said.out).into_iter::<Value>();
        responses.collect::<Result<_, _>>().map_err(|error| format!("grpcurl's output is no JSON: {error}"))
    }

    /// As many calls as were asked for, and all of them succeed.
    async fn ghz(&self, method: &str, request: &str, count: u64) -> Result<(), String> {
        let mut args: Vec<String> = match self.tls {
            true => vec!["--cacert".to_owned(), self.ca()],
            false => vec!["--insecure".to_owned()],
        };
        args.extend([
            format!("--call={SERVICE}/{method}"),
            format!("--data={request}"),
            format!("--total={count}"),
            "--concurrency=20".to_owned(),
            "--connections=4".to_owned(),
            "--format=json".to_owned(),
            self.address(),
        ]);
        let said = foreign::run(&self.lab.tools.join("ghz"), args).await?;
        let report: Value = serde_json::from_str(&said.out)
            .map_err(|error| format!("ghz's report is no JSON ({error}); {}", said.final_status()))?;
        expect(&report["count"], &json!(count))?;
        expect(&report["statusCodeDistribution"], &json!({ "OK": count }))
    }
}

fn expect(got: &Value, wanted: &Value) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{wanted} was expected, and {got} came")) }
}

fn expect_text(said: &Said, wanted: &str) -> Result<(), String> {
    if said.out.contains(wanted) || said.err.contains(wanted) {
        return Ok(());
    }
    Err(format!("\"{wanted}\" was expected; {}", said.final_status()))
}

async fn list(server: &Server<'_>) -> Result<(), String> {
    let said = server.grpcurl(&[], &["list"]).await?;
    for service in [SERVICE, "grpc.reflection.v1.ServerReflection", "xds.service.orca.v3.OpenRcaService"] {
        if !said.out.lines().any(|line| line == service) {
            return Err(format!("{service} is not listed; {}", said.final_status()));
        }
    }
    Ok(())
}

async fn describe(server: &Server<'_>) -> Result<(), String> {
    let said = server.grpcurl(&[], &["describe", SERVICE]).await?;
    expect_text(&said, "rpc EmptyCall ( .grpc.testing.Empty ) returns ( .grpc.testing.Empty );")?;
    expect_text(
        &said,
        "rpc FullDuplexCall ( stream .grpc.testing.StreamingOutputCallRequest ) \
         returns ( stream .grpc.testing.StreamingOutputCallResponse );",
    )
}

async fn unary(server: &Server<'_>) -> Result<(), String> {
    let responses = server.call("UnaryCall", r#"{"response_size": 5}"#).await?;
    expect(&json!(responses), &json!([{ "payload": { "body": "AAAAAAA=" } }]))
}

async fn client_stream(server: &Server<'_>) -> Result<(), String> {
    let message = r#"{"payload": {"body": "AAAAAAA="}}"#;
    let responses = server.call("StreamingInputCall", &message.repeat(3)).await?;
    expect(&json!(responses), &json!([{ "aggregatedPayloadSize": 15 }]))
}

async fn server_stream(server: &Server<'_>) -> Result<(), String> {
    let request = r#"{"response_parameters": [{"size": 1}, {"size": 2}, {"size": 3}]}"#;
    let responses = server.call("StreamingOutputCall", request).await?;
    let bodies = ["AA==", "AAA=", "AAAA"].map(|body| json!({ "payload": { "body": body } }));
    expect(&json!(responses), &json!(bodies))
}

async fn both_streams(server: &Server<'_>) -> Result<(), String> {
    let requests = r#"{"response_parameters": [{"size": 1}]} {"response_parameters": [{"size": 2}]}"#;
    let responses = server.call("FullDuplexCall", requests).await?;
    let bodies = ["AA==", "AAA="].map(|body| json!({ "payload": { "body": body } }));
    expect(&json!(responses), &json!(bodies))
}

async fn metadata(server: &Server<'_>) -> Result<(), String> {
    let header = "x-grpc-test-echo-initial: from grpcurl";
    let said = server.grpcurl(&["-v", "-H", header], &[&format!("{SERVICE}/UnaryCall")]).await?;
    // Once as it was sent, once as it came back.
    let count = said.out.matches(header).count();
    if said.code == Some(0) && count == 2 {
        return Ok(());
    }
    Err(format!("the header is shown {count} times, not 2; {}", said.final_status()))
}

async fn error(server: &Server<'_>) -> Result<(), String> {
    let request = r#"{"response_status": {"code": 9, "message": "the road is closed"}}"#;
    let said = server.grpcurl(&["-d", request], &[&format!("{SERVICE}/UnaryCall")]).await?;
    expect_text(&said, "Code: FailedPrecondition")?;
    expect_text(&said, "Message: the road is closed")?;
    // grpcurl adds the status to 64.
    if said.code == Some(64 + 9) { Ok(()) } else { Err(said.final_status()) }
}

async fn unimplemented(server: &Server<'_>) -> Result<(), String> {
    let said = server.grpcurl(&[], &[&format!("{SERVICE}/UnimplementedCall")]).await?;
    expect_text(&said, "Code: Unimplemented")?;
    if said.code == Some(64 + 12) { Ok(()) } else { Err(said.final_status()) }
}

async fn many_unary(server: &Server<'_>) -> Result<(), String> {
    server.ghz("UnaryCall", r#"{"response_size": 100, "payload": {"body": "AAAAAAA="}}"#, UNARY_COUNT).await
}

async fn many_streams(server: &Server<'_>) -> Result<(), String> {
    let requests = r#"[{"response_parameters": [{"size": 10}]}, {"response_parameters": [{"size": 20}]}]"#;
    server.ghz("FullDuplexCall", requests, STREAM_COUNT).await
}

/// Runs all checks, and says on the terminal how far it is.
pub(crate) async fn run(lab: &Lab) -> Vec<Check> {
    let ports = [lab.plain_port, lab.tls_port, lab.gateway_plain_port, lab.gateway_tls_port];
    let [plain, tls, behind, behind_tls] =
        std::array::from_fn(|at| Server { lab, port: ports[at], tls: at % 2 == 1 });
    let mut checks = Vec::new();
    macro_rules! check {
        ($($tool:literal, $what:expr, $check:ident;)*) => {$(
            let outcomes = [
                $check(&plain).await,
                $check(&tls).await,
                $check(&behind).await,
                $check(&behind_tls).await,
            ];
            let marks: String = outcomes.iter().map(|outcome| if outcome.is_ok() { '.' } else { 'F' }).collect();
            println!("  {:<56} {marks}", format!("{}: {}", $tool, $what));
            checks.push(Check { tool: $tool, what: $what, outcomes });
        )*};
    }
    check! {
        "grpcurl", "list services", list;
        "grpcurl", "describe a service", describe;
        "grpcurl", "unary call", unary;
        "grpcurl", "client stream", client_stream;
        "grpcurl", "server stream", server_stream;
        "grpcurl", "streams both ways", both_streams;
        "grpcurl", "metadata there and back", metadata;
        "grpcurl", "error status", error;
        "grpcurl", "unimplemented method", unimplemented;
        "ghz", "4,000 unary calls without an error", many_unary;
        "ghz", "1,000 calls with streams both ways", many_streams;
    }
    checks
}
