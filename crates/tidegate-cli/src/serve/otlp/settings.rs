//! Reads the settings of the export from the standard environment variables of OpenTelemetry. Pure but for
//! [`Settings::from_environment`].
//!
//! An empty variable counts as not set, as the standard says. A wrong value stops the start, so that no
//! server runs for weeks without the traces that its operator expects.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use tidegate_server::SpanSampling;

/// The settings of the export. Without a collector for traces or metrics the server exports none of them.
#[derive(Debug)]
pub(in crate::serve) struct Settings {
    pub(super) traces: Option<Target>,
    pub(super) metrics: Option<Target>,
    /// The rule by which the server follows publishes; `None` follows none.
    pub(super) sampling: Option<SpanSampling>,
    /// The attributes of the server that the operator gave.
    pub(super) resource: Vec<(String, String)>,
    /// The longest time that a span waits for others before the thread sends them.
    pub(super) spans_delay: Duration,
    pub(super) metrics_interval: Duration,
}

/// The collector for traces or for metrics.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    pub(super) headers: HeaderMap,
    /// The longest time of a request with its answer.
    pub(super) timeout: Duration,
    /// The authorities of the collector's certificate, in place of the system's.
    pub(super) ca_file: Option<PathBuf>,
}

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) is_tls: bool,
    /// The host as it stands in the URL: an IPv6 address has brackets.
    host: String,
    pub(super) port: u16,
    /// The path of requests, with a slash at its start.
    pub(super) path: String,
}

/// The error for a variable with a value that the export cannot use.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {variable}{value}: expected {expected}")]
pub(in crate::serve) struct WrongVariable {
    variable: String,
    /// The value with a sign of equality before it; empty if it may hold a secret.
    value: String,
    expected: &'static str,
}

const URL: &str = "an http:// or https:// URL of a collector, such as http://127.0.0.1:4318";
const MILLISECONDS: &str = "a number of milliseconds from 1 on";
const PAIRS: &str = "NAME=VALUE,NAME=VALUE with percent-encoded values";
const SAMPLERS: &str =
    "parentbased_always_off, parentbased_always_on, parentbased_traceidratio or always_off";

/// The two kinds of data, with the names by which variables and paths tell them apart.
#[derive(Clone, Copy)]
struct Signal {
    name: &'static str,
    path: &'static str,
}

const TRACES: Signal = Signal {
    name: "TRACES",
    path: "/v1/traces",
};
const METRICS: Signal = Signal {
    name: "METRICS",
    path: "/v1/metrics",
};

impl Settings {
    /// Reads the settings from this process's environment.
    ///
    /// # Errors
    /// A variable with a wrong value.
    pub(in crate::serve) fn from_environment() -> Result<Self, WrongVariable> {
        Self::of(&|name| std::env::var_os(name))
    }

    fn of(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, WrongVariable> {
        let variables = Variables(lookup);
        Ok(Self {
            traces: variables.target(TRACES)?,
            metrics: variables.target(METRICS)?,
            sampling: variables.sampling()?,
            resource: variables.resource()?,
            spans_delay: variables.milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5000)?,
            metrics_interval: variables.milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?,
        })
    }
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<OsString>);

impl Variables<'_> {
    /// Returns the value of a variable; `None` if it is empty or not set.
    fn get(&self, name: &str) -> Result<Option<String>, WrongVariable> {
        let value = (self.0)(name).filter(|value| !value.is_empty());
        let value = value.map(OsString::into_string).transpose();
        value.map_err(|_| secret(name, "UTF-8"))
    }

    /// Returns the first of the variables of a signal that is set, with its name: that of the signal alone
    /// comes before that of all signals.
    fn first(&self, signal: Signal, name: &str) -> Result<Option<(String, String)>, WrongVariable> {
        for variable in [
            format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.name),
            format!("OTEL_EXPORTER_OTLP_{name}"),
        ] {
            if let Some(value) = self.get(&variable)? {
                return Ok(Some((variable, value)));
            }
        }
        Ok(None)
    }

    /// Returns the collector of a signal; `None` if the operator wants no export of it.
    fn target(&self, signal: Signal) -> Result<Option<Target>, WrongVariable> {
        let disabled = self.get("OTEL_SDK_DISABLED")?;
        if disabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let exporter = format!("OTEL_{}_EXPORTER", signal.name);
        match self.get(&exporter)?.as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => return Err(wrong(&exporter, other, "otlp or none")),
        }
        let own = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name);
        let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let endpoint = if let Some(value) = self.get(&own)? {
            Endpoint::parse(&value).ok_or_else(|| wrong(&own, &value, URL))?
        } else if let Some(value) = self.get(all)? {
            let base = Endpoint::parse(&value).ok_or_else(|| wrong(all, &value, URL))?;
            base.below(signal.path)
        } else {
            return Ok(None);
        };
        if let Some((name, protocol)) = self.first(signal, "PROTOCOL")?
            && protocol != "http/protobuf"
        {
            return Err(wrong(
                &name,
                &protocol,
                "http/protobuf, the only protocol here",
            ));
        }
        let timeout = match self.first(signal, "TIMEOUT")? {
            None => Duration::from_secs(10),
            Some((name, value)) => milliseconds(&name, &value)?,
        };
        let headers = match self.first(signal, "HEADERS")? {
            None => HeaderMap::new(),
            Some((name, value)) => headers(&value).ok_or_else(|| secret(&name, PAIRS))?,
        };
        let ca_file = self.first(signal, "CERTIFICATE")?;
        Ok(Some(Target {
            endpoint,
            headers,
            timeout,
            ca_file: ca_file.map(|(_, path)| path.into()),
        }))
    }

    /// Returns the rule by which the server follows publishes. The standard's default would follow each
    /// publish; this server's default follows only those that their clients record.
    fn sampling(&self) -> Result<Option<SpanSampling>, WrongVariable> {
        const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let sampler = self.get(SAMPLER)?;
        let one_in = match sampler.as_deref() {
            None | Some("parentbased_always_off") => None,
            Some("parentbased_always_on") => NonZeroU64::new(1),
            Some("parentbased_traceidratio") => {
                let value = self.get(ARGUMENT)?.unwrap_or_else(|| "1".into());
                let ratio = value
                    .parse()
                    .ok()
                    .filter(|ratio| (0.0..=1.0).contains(ratio));
                let ratio = ratio.ok_or_else(|| wrong(ARGUMENT, &value, "a share from 0 to 1"))?;
                one_in(ratio)
            }
            Some("always_off") => return Ok(None),
            Some(other) => return Err(wrong(SAMPLER, other, SAMPLERS)),
        };
        Ok(Some(SpanSampling { one_in }))
    }

    fn resource(&self) -> Result<Vec<(String, String)>, WrongVariable> {
        const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let mut all = match self.get(ATTRIBUTES)? {
            None => Vec::new(),
            Some(value) => pairs(&value).ok_or_else(|| wrong(ATTRIBUTES, &value, PAIRS))?,
        };
        if let Some(name) = self.get("OTEL_SERVICE_NAME")? {
            all.retain(|(key, _)| key != "service.name");
            all.push(("service.name".into(), name));
        }
        Ok(all)
    }

    fn milliseconds(&self, name: &str, default: u64) -> Result<Duration, WrongVariable> {
        match self.get(name)? {
            None => Ok(Duration::from_millis(default)),
            Some(value) => milliseconds(name, &value),
        }
    }
}

impl Endpoint {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.trim().parse().ok()?;
        let is_tls = *uri.scheme()? == Scheme::HTTPS;
        if !is_tls && *uri.scheme()? != Scheme::HTTP || text.contains(['?', '#']) {
            return None;
        }
        let authority = uri.authority()?.as_str();
        let host = uri.host().filter(|host| !host.is_empty())?;
        let port = match uri.port() {
            Some(port) => port.as_u16(),
            // Credentials, or a port that is no number.
            None if authority.len() > host.len() => return None,
            None if is_tls => 443,
            None => 80,
        };
        if port == 0 || authority.contains('@') {
            return None;
        }
        Some(Self {
            is_tls,
            host: host.to_owned(),
            port,
            path: uri.path().to_owned(),
        })
    }

    /// Returns the endpoint of a signal below this one, which is that of all signals.
    fn below(mut self, path: &str) -> Self {
        self.path = format!("{}{path}", self.path.trim_end_matches('/'));
        self
    }

    /// Returns the host as a resolver takes it: an IPv6 address without brackets.
    pub(super) fn bare_host(&self) -> &str {
        let inner = self.host.strip_prefix('[');
        inner
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(&self.host)
    }

    /// Returns the address as the header `Host` has it.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.is_tls {
            true => "https",
            false => "http",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

fn wrong(variable: &str, value: &str, expected: &'static str) -> WrongVariable {
    WrongVariable {
        variable: variable.to_owned(),
        value: format!("={}", value.escape_debug()),
        expected,
    }
}

/// Makes the error for a value that must not stand in a log.
fn secret(variable: &str, expected: &'static str) -> WrongVariable {
    WrongVariable {
        variable: variable.to_owned(),
        value: String::new(),
        expected,
    }
}

fn milliseconds(name: &str, value: &str) -> Result<Duration, WrongVariable> {
    let number: Option<u32> = value.trim().parse().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| wrong(name, value, MILLISECONDS))?;
    Ok(Duration::from_millis(number.into()))
}

/// Returns the number of publishes of which the server follows one, for a share of them.
fn one_in(ratio: f64) -> Option<NonZeroU64> {
    if ratio <= 0.0 {
        return None;
    }
    // The conversion saturates, so a tiny share follows next to nothing.
    NonZeroU64::new((1.0 / ratio).round() as u64)
}

/// Parses `NAME=VALUE,NAME=VALUE`, in which values are percent-encoded, as in the header `baggage`.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let one = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let name = Some(name.trim()).filter(|name| !name.is_empty())?;
        Some((name.to_owned(), decoded(value.trim())?))
    };
    parts.map(one).collect()
}

fn headers(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(text)? {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Some(headers)
}

/// Decodes `%20` and the like; `None` if a percent sign has no two digits behind it, or for text that is not
/// UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Settings, WrongVariable> {
        Settings::of(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    const ALL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/");

    #[test]
    fn without_an_endpoint_nothing_is_exported() {
        for variables in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[ALL, ("OTEL_SDK_DISABLED", "True")],
            &[
                ALL,
                ("OTEL_TRACES_EXPORTER", "none"),
                ("OTEL_METRICS_EXPORTER", "none"),
            ],
            // A protocol that nothing uses.
            &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
        ] {
            let settings = of(variables).unwrap();
            assert!(
                settings.traces.is_none() && settings.metrics.is_none(),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn a_signal_has_the_common_endpoint_or_its_own() {
        let settings = of(&[
            ALL,
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://[::1]/m"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20x, a=b",
            ),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "1500"),
        ])
        .unwrap();
        let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
        assert_eq!(traces.endpoint.to_string(), "http://c:4318/base/v1/traces");
        assert_eq!(metrics.endpoint.to_string(), "https://[::1]:443/m");
        assert_eq!(metrics.endpoint.bare_host(), "::1");
        assert_eq!(traces.headers["authorization"], "Bearer x");
        assert_eq!(metrics.headers["a"], "b");
        let timeouts = (traces.timeout, metrics.timeout);
        assert_eq!(
            timeouts,
            (Duration::from_secs(10), Duration::from_millis(1500))
        );
        assert_eq!(settings.metrics_interval, Duration::from_secs(60));
    }

    #[test]
    fn the_sampler_becomes_a_rule_for_publishes() {
        let rule = |sampler: &str, argument: &str| {
            let variables = [
                ("OTEL_TRACES_SAMPLER", sampler),
                ("OTEL_TRACES_SAMPLER_ARG", argument),
            ];
            of(&variables).map(|settings| settings.sampling.map(|s| s.one_in.map(NonZeroU64::get)))
        };
        assert_eq!(rule("", ""), Ok(Some(None)));
        assert_eq!(rule("parentbased_always_off", ""), Ok(Some(None)));
        assert_eq!(rule("parentbased_always_on", ""), Ok(Some(Some(1))));
        assert_eq!(
            rule("parentbased_traceidratio", "0.001"),
            Ok(Some(Some(1000)))
        );
        assert_eq!(rule("parentbased_traceidratio", ""), Ok(Some(Some(1))));
        assert_eq!(rule("parentbased_traceidratio", "0"), Ok(Some(None)));
        assert_eq!(rule("always_off", ""), Ok(None));
        for (sampler, argument) in [("always_on", ""), ("parentbased_traceidratio", "2")] {
            rule(sampler, argument).unwrap_err();
        }
    }

    #[test]
    fn the_service_has_the_name_that_the_operator_gave() {
        let attributes = (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=a,deployment.environment=b%2Cc",
        );
        let of = |variables: &[(&str, &str)]| of(variables).unwrap().resource;
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let environment = pair("deployment.environment", "b,c");
        let named = pair("service.name", "a");
        assert_eq!(of(&[attributes]), [named, environment.clone()]);
        let all = of(&[attributes, ("OTEL_SERVICE_NAME", "z")]);
        assert_eq!(all, [environment, pair("service.name", "z")]);
    }

    #[test]
    fn a_wrong_value_is_named_and_a_secret_is_not_shown() {
        for endpoint in [
            "localhost:4318",
            "ftp://h",
            "http://",
            "http://h:99999",
            "http://h:0",
            "http://u:p@h:1",
            "http://h:1/?a",
            "not a url",
        ] {
            let error = of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]).unwrap_err();
            let said = error.to_string();
            let wanted = format!("OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}: expected an http://");
            assert!(said.contains(&wanted), "{said}");
        }
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1s"),
            ("OTEL_TRACES_SAMPLER", "always_on"),
        ] {
            let said = of(&[ALL, (name, value)]).unwrap_err().to_string();
            assert!(
                said.contains(&format!("{name}={value}: expected")),
                "{said}"
            );
        }
        for value in ["authorization", "a b=c", "a=%zz", "a=%0a"] {
            let said = of(&[ALL, ("OTEL_EXPORTER_OTLP_HEADERS", value)])
                .unwrap_err()
                .to_string();
            assert!(
                !said.contains(value) && said.contains("HEADERS: expected"),
                "{said}"
            );
        }
    }
}
