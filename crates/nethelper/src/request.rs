//! Requests to the helper. An unprivileged caller controls only what this grammar accepts.
//!
//! ```text
//! serve PREFIX [--mahimahi] [--nested] [--private [--offline] [--host IPV4] [--host-ipv6 IPV6]]
//! enter NAMESPACE REPORT [--resolv-conf FILE] -- COMMAND [ARGUMENT]...
//! clean
//! ```
//!
//! On the socket of `serve`: lines `go` and `names PORT`.

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Allowed prefixes of device names, before `-PID`: the shells of cellbed and of Mahimahi.
pub const PREFIXES: [&str; 9] = [
    "cellbed",
    "cellular",
    "delay",
    "intermittent",
    "link",
    "loss",
    "meter",
    "onoff",
    "replay",
];

/// Maximum length of a device name in the kernel (netdevice(7)).
const LONGEST_NAME: usize = 15;

/// One call of the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Create the network of a shell and keep it until standard input ends.
    Serve(Serve),
    /// Execute a command inside a network that `serve` has created.
    Enter(Enter),
    /// Remove remains of killed helpers in the current network namespace.
    Clean,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serve {
    /// One of [`PREFIXES`].
    pub prefix: &'static str,
    /// Use addresses, names and destinations of Mahimahi's shells.
    pub mahimahi: bool,
    /// True if the caller is inside another shell.
    pub nested: bool,
    /// Work inside a new user and network namespace. The caller connects it before sending `go`.
    pub private: bool,
    /// Connect the private namespace to nothing.
    pub offline: bool,
    /// Address of the host in a private namespace.
    pub host: Option<Ipv4Addr>,
    pub host_ipv6: Option<Ipv6Addr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enter {
    /// Number of the inherited descriptor of the network namespace.
    pub namespace: i32,
    /// Number of the inherited descriptor for an error; closed when the command is executed.
    pub report: i32,
    /// File that the command sees as `/etc/resolv.conf`.
    pub resolv_conf: Option<PathBuf>,
    /// The command and its arguments; not empty.
    pub command: Vec<OsString>,
}

impl Request {
    /// Read the arguments of the helper.
    pub fn parse(arguments: &[OsString]) -> Result<Self> {
        let (verb, rest) = arguments
            .split_first()
            .ok_or_else(|| wrong("no request: expected serve, enter or clean"))?;
        match verb.to_str() {
            Some("serve") => Serve::parse(rest).map(Self::Serve),
            Some("enter") => Enter::parse(rest).map(Self::Enter),
            Some("clean") if rest.is_empty() => Ok(Self::Clean),
            Some("clean") => Err(wrong("clean takes no arguments")),
            _ => Err(wrong(format!(
                "unknown request {}: expected serve, enter or clean",
                quote(verb)
            ))),
        }
    }
}

impl Serve {
    fn parse(arguments: &[OsString]) -> Result<Self> {
        let (first, rest) = arguments
            .split_first()
            .ok_or_else(|| wrong("serve: no device prefix"))?;
        let prefix = PREFIXES
            .into_iter()
            .find(|prefix| OsStr::new(prefix) == first)
            .ok_or_else(|| {
                let (first, all) = (quote(first), PREFIXES.join(", "));
                wrong(format!(
                    "serve: {first} is no device prefix: expected one of {all}"
                ))
            })?;
        let mut request = Self {
            prefix,
            ..Self::default()
        };
        let mut rest = rest.iter();
        while let Some(option) = rest.next() {
            match option.to_str() {
                Some("--mahimahi") => request.mahimahi = true,
                Some("--nested") => request.nested = true,
                Some("--private") => request.private = true,
                Some("--offline") => request.offline = true,
                Some("--host") => {
                    request.host = Some(host(rest.next(), |it: &Ipv4Addr| {
                        it.octets()[..2] == [100, 127] && it.octets()[2] >= 128
                    })?);
                }
                Some("--host-ipv6") => {
                    request.host_ipv6 = Some(host(rest.next(), |it: &Ipv6Addr| {
                        it.segments()[..4] == [0xfd63, 0x656c, 0x6c62, 0xfe00]
                    })?);
                }
                _ => return unexpected("serve", option),
            }
        }
        let of_private = request.offline || request.host.is_some() || request.host_ipv6.is_some();
        if of_private && !request.private {
            return Err(wrong("serve: --offline and --host need --private"));
        }
        Ok(request)
    }

    /// Return the name of the outer device for the shell of process `caller`.
    pub fn device(&self, caller: i32) -> String {
        let number = caller.to_string();
        let room = LONGEST_NAME.saturating_sub(number.len() + 1);
        format!("{}-{number}", &self.prefix[..self.prefix.len().min(room)])
    }

    /// Return the name of the inner device.
    pub fn inner_device(&self) -> &'static str {
        if self.mahimahi { "ingress" } else { "cellbed0" }
    }
}

impl Enter {
    fn parse(arguments: &[OsString]) -> Result<Self> {
        let mut rest = arguments.iter();
        let namespace = descriptor(rest.next())?;
        let report = descriptor(rest.next())?;
        if namespace == report {
            return Err(wrong("enter: expected two descriptors"));
        }
        let mut resolv_conf = None;
        loop {
            match rest.next() {
                Some(option) if option == "--" => break,
                Some(option) if option == "--resolv-conf" => {
                    let path = rest.next().map(PathBuf::from);
                    resolv_conf = path.filter(|path| path.is_absolute());
                    if resolv_conf.is_none() {
                        return Err(wrong("enter: --resolv-conf needs an absolute path"));
                    }
                }
                Some(option) => return unexpected("enter", option),
                None => return Err(wrong("enter: expected -- COMMAND")),
            }
        }
        let command: Vec<OsString> = rest.cloned().collect();
        if command.first().is_none_or(|name| name.is_empty()) {
            return Err(wrong("enter: no command"));
        }
        Ok(Self {
            namespace,
            report,
            resolv_conf,
            command,
        })
    }
}

/// A line on the socket of `serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The private namespace is connected.
    Go,
    /// A name server of the caller listens at the gateway, on this port.
    Names(u16),
}

impl Message {
    /// Maximum length of a line, line end included.
    pub const LONGEST: usize = 32;

    /// Read a line without its end.
    pub fn parse(line: &[u8]) -> Result<Self> {
        if line == b"go" {
            return Ok(Self::Go);
        }
        let port = line.strip_prefix(b"names ").map(std::str::from_utf8);
        match port.map(|text| number::<u16>(text.ok())) {
            Some(Some(port @ 1024..)) => Ok(Self::Names(port)),
            Some(_) => Err(wrong("names: expected a port from 1024 to 65535")),
            None => Err(wrong("unknown message: expected 'go' or 'names PORT'")),
        }
    }
}

/// Parse digits; a sign is invalid.
fn number<T: FromStr>(text: Option<&str>) -> Option<T> {
    text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?
        .parse()
        .ok()
}

fn descriptor(text: Option<&OsString>) -> Result<i32> {
    number(text.and_then(|text| text.to_str()))
        .filter(|&number: &i32| number > 2)
        .ok_or_else(|| wrong("enter: expected the number of a descriptor above 2"))
}

fn host<A: FromStr>(text: Option<&OsString>, ours: impl Fn(&A) -> bool) -> Result<A> {
    text.and_then(|text| text.to_str())
        .and_then(|text| text.parse().ok())
        .filter(ours)
        .ok_or_else(|| wrong("serve: the host's address is not one of cellbed's"))
}

fn wrong(problem: impl Into<String>) -> Error {
    Error::Request(problem.into())
}

fn unexpected<T>(verb: &str, argument: &OsStr) -> Result<T> {
    let argument = quote(argument);
    Err(wrong(format!("{verb}: unexpected argument {argument}")))
}

/// Quote an argument safely for a message.
fn quote(argument: &OsStr) -> String {
    let text: String = argument.to_string_lossy().chars().take(40).collect();
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> Result<Request> {
        let words = line.split_whitespace().map(OsString::from);
        Request::parse(&words.collect::<Vec<_>>())
    }

    #[test]
    fn a_request_is_read_whole() {
        let Ok(Request::Serve(serve)) = parse("serve delay --mahimahi --nested") else {
            panic!()
        };
        assert_eq!(
            (serve.prefix, serve.mahimahi, serve.nested, serve.private),
            ("delay", true, true, false)
        );
        assert_eq!(serve.device(123), "delay-123");
        let Ok(Request::Enter(enter)) = parse("enter 7 8 --resolv-conf /x -- sh -c -- x") else {
            panic!()
        };
        assert_eq!(enter.command, ["sh", "-c", "--", "x"]);
        assert_eq!(parse("clean").unwrap(), Request::Clean);
    }

    #[test]
    fn whatever_is_not_in_the_grammar_is_refused() {
        for line in [
            "",
            "delete",
            "clean all",
            "serve",
            "serve eth0",
            "serve delay-1",
            "serve ../x",
            "serve delay --host 100.127.128.2",
            "serve delay --offline",
            "serve delay --private --host 10.0.0.1",
            "serve delay --private --host 100.127.127.2",
            "serve delay --private --host",
            "serve delay --private --host-ipv6 2001:db8::1",
            "serve delay 123",
            "enter",
            "enter 2 3 -- sh",
            "enter 7 7 -- sh",
            "enter 7 -- sh",
            "enter +7 8 -- sh",
            "enter 99999999999 8 -- sh",
            "enter 7 8 sh",
            "enter 7 8 --",
            "enter 7 8 --resolv-conf x -- sh",
        ] {
            let Err(Error::Request(text)) = parse(line) else {
                panic!("{line}")
            };
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn messages_are_short_and_ports_unprivileged() {
        assert_eq!(Message::parse(b"go").unwrap(), Message::Go);
        assert_eq!(Message::parse(b"names 1024").unwrap(), Message::Names(1024));
        for line in ["", "go ", "names", "names 53", "names 65536", "names +4000"] {
            assert!(Message::parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_arguments_are_answered(arguments in prop::collection::vec("(serve|enter|clean|--|[ -~]{0,20})", 0..8)) {
            let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
            if let Err(error) = Request::parse(&arguments) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }

        #[test]
        fn a_device_has_a_name_of_ours_that_the_kernel_takes(which in 0..PREFIXES.len(), caller in 1..=4_194_304i32) {
            let Ok(Request::Serve(serve)) = parse(&format!("serve {}", PREFIXES[which])) else { panic!() };
            let name = serve.device(caller);
            prop_assert!(name.len() <= LONGEST_NAME);
            let (prefix, number) = name.split_once('-').unwrap();
            prop_assert!(PREFIXES[which].starts_with(prefix) && prefix.len() >= 4);
            prop_assert_eq!(number.parse::<i32>().unwrap(), caller);
        }

        #[test]
        fn any_line_is_answered(line in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Message::Names(port)) = Message::parse(&line) {
                prop_assert!(port >= 1024);
            }
        }
    }
}
