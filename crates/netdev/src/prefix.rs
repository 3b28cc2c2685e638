//! Addresses with prefix lengths.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Deserialize;

/// An address and its prefix length, as in `100.64.0.2/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub length: u8,
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let expected = || {
            format!(
                "{text:?} is not a prefix; expected ADDRESS/LENGTH, for instance \"100.64.0.2/32\""
            )
        };
        let (address, length) = text.split_once('/').ok_or_else(expected)?;
        let address: IpAddr = address.parse().map_err(|_| expected())?;
        let length: u8 = length.parse().map_err(|_| expected())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if length > most {
            return Err(format!("the prefix length of {text:?} is above {most}"));
        }
        Ok(Self { address, length })
    }
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}
