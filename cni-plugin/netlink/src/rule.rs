//! Policy routing rules: which packets are routed by which table.

use std::fmt;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use crate::socket::removed;
use crate::{Family, NetlinkError, Request, RouteProtocol, Socket, TableId};

/// Packets with a mark are routed by a table.
///
/// A rule of somebody else's may ask for more than is told here; such a rule is listed, but
/// what is told of it is not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Of which packets.
    pub family: Family,
    /// Lower ones are asked first.
    pub priority: u32,
    /// All 32 bits of the packet's mark; absent: any.
    pub mark: Option<u32>,
    /// The table.
    pub table: TableId,
    /// Who made it.
    pub protocol: RouteProtocol,
}

impl Rule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = self.family.wire();
        message.header.action = RuleAction::ToTable;
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Priority(self.priority));
        attributes.push(RuleAttribute::Table(self.table.0));
        attributes.push(RuleAttribute::Protocol(self.protocol.0.into()));
        if let Some(mark) = self.mark {
            attributes.push(RuleAttribute::FwMark(mark));
            attributes.push(RuleAttribute::FwMask(u32::MAX));
        }
        message
    }

    /// `None`: a family that is not IP.
    pub(crate) fn parse(message: &RuleMessage) -> Option<Self> {
        let mut rule = Self {
            family: match message.header.family {
                AddressFamily::Inet => Family::V4,
                AddressFamily::Inet6 => Family::V6,
                _ => return None,
            },
            // The first one is said by silence.
            priority: 0,
            mark: None,
            table: TableId(message.header.table.into()),
            protocol: RouteProtocol(0),
        };
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) => rule.table = TableId(*table),
                RuleAttribute::FwMark(mark) => rule.mark = Some(*mark),
                RuleAttribute::Protocol(protocol) => {
                    rule.protocol = RouteProtocol(u8::from(*protocol));
                }
                _ => {}
            }
        }
        Some(rule)
    }
}

impl fmt::Display for Rule {
    /// As in `ip rule`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = match self.family {
            Family::V4 => 4,
            Family::V6 => 6,
        };
        write!(f, "IPv{version} priority {}", self.priority)?;
        if let Some(mark) = self.mark {
            write!(f, " fwmark {mark:#x}")?;
        }
        write!(f, " lookup {}", self.table.0)
    }
}

impl Request<'static> {
    /// Adds a rule; fails when an equal one exists.
    pub fn rule_add(rule: &Rule) -> Self {
        let message = Message::NewRule(rule.message());
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        Self::new("rule add", rule.to_string(), flags, &message)
    }

    /// Deletes a rule that agrees in every field.
    pub fn rule_delete(rule: &Rule) -> Self {
        let message = Message::DelRule(rule.message());
        Self::new("rule delete", rule.to_string(), 0, &message)
    }
}

impl Socket {
    /// All rules of a family, in the order in which they are asked.
    pub fn rules(&mut self, family: Family) -> Result<Vec<Rule>, NetlinkError> {
        let mut message = RuleMessage::default();
        message.header.family = family.wire();
        let request = Request::new("rule list", "all", 0, &Message::GetRule(message));
        self.list(&request, |message| match message {
            Message::NewRule(rule) => Rule::parse(&rule),
            _ => None,
        })
    }

    /// Adds a rule; fails when an equal one exists.
    pub fn rule_add(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        self.execute(&[Request::rule_add(rule)])
    }

    /// Makes sure that the rule is not there; tells whether it was.
    pub fn remove_rule(&mut self, rule: &Rule) -> Result<bool, NetlinkError> {
        removed(self.execute(&[Request::rule_delete(rule)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_and_back() {
        let rule = Rule {
            family: Family::V6,
            priority: 83,
            mark: Some(0x53),
            table: TableId(1083),
            protocol: RouteProtocol::SEAWAY,
        };
        assert_eq!(Rule::parse(&rule.message()), Some(rule));
        assert_eq!(rule.to_string(), "IPv6 priority 83 fwmark 0x53 lookup 1083");
    }
}
