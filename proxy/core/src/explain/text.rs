//! An explanation as a person reads it.

use std::fmt::{self, Formatter};

use super::{Candidate, Explanation, Judgement, Left, Outcome, Policies, Served, Target};

impl fmt::Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.protocol)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.served {
            None => writeln!(f, "{}: no Service port is served here", self.target)?,
            Some(served) => write_served(f, &self.target, served)?,
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        if !self.skipped.is_empty() {
            writeln!(f, "not programmed")?;
        }
        for skip in &self.skipped {
            writeln!(f, "  {skip}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            object,
            field,
            reason,
        } = self;
        write!(f, "{kind} {object}: {field}: {reason}")
    }
}

fn write_served(f: &mut Formatter<'_>, target: &str, served: &Served) -> fmt::Result {
    let Served {
        namespace,
        service,
        port,
        kind,
        ..
    } = served;
    write!(f, "{target}: {kind} of Service {namespace}/{service}")?;
    if !port.is_empty() {
        write!(f, ", port {port}")?;
    }
    writeln!(
        f,
        "\n  all addresses of this port: {}",
        served.frontends.join(", ")
    )?;
    write_policies(f, &served.policies)?;
    writeln!(f, "clients")?;
    for judgement in &served.clients {
        writeln!(f, "  {judgement}")?;
    }
    writeln!(f, "endpoints")?;
    if served.endpoints.is_empty() {
        writeln!(f, "  none in any slice of this Service")?;
    }
    for candidate in &served.endpoints {
        writeln!(f, "  {candidate}")?;
    }
    Ok(())
}

fn write_policies(f: &mut Formatter<'_>, policies: &Policies) -> fmt::Result {
    writeln!(f, "policies")?;
    let here = |which| {
        if policies.applies == which {
            "  (applies here)"
        } else {
            ""
        }
    };
    writeln!(
        f,
        "  internalTrafficPolicy: {}{}",
        policies.internal,
        here("internal")
    )?;
    writeln!(
        f,
        "  externalTrafficPolicy: {}{}",
        policies.external,
        here("external")
    )?;
    if let Some(ranges) = &policies.source_ranges {
        let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
        writeln!(f, "  loadBalancerSourceRanges: {}", ranges.join(", "))?;
    }
    if let Some(seconds) = policies.affinity_seconds {
        writeln!(f, "  sessionAffinity: ClientIP, {seconds} s")?;
    }
    if let Some(hints) = &policies.hints {
        writeln!(f, "  topology hints: for {hints}")?;
    }
    for policy in &policies.terminating_fallback {
        writeln!(
            f,
            "  policy {policy}: no endpoint is ready, those that terminate answer"
        )?;
    }
    if policies.masquerade_all {
        writeln!(f, "  all clients of clusterIPs are masqueraded")?;
    }
    Ok(())
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(from) = self.from {
            write!(f, "{from}, ")?;
        }
        write!(f, "{}: ", self.client)?;
        match self.outcome {
            Outcome::Refused => f.write_str("refused")?,
            Outcome::Dropped => f.write_str("dropped")?,
            Outcome::Answered => {
                let endpoints: Vec<_> = self.endpoints.iter().map(ToString::to_string).collect();
                let as_node = if self.masquerade { ", masqueraded" } else { "" };
                write!(f, "answered by {}{as_node}", endpoints.join(" or "))?;
            }
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if let Some(node) = &self.node {
            write!(
                f,
                " on node {node}{}",
                if self.local { " (this one)" } else { "" }
            )?;
        }
        if !self.answers.is_empty() {
            write!(f, ", answers under policy {}", self.answers.join(" and "))?;
        }
        for left in &self.left_out {
            match &left.policy {
                Some(policy) => write!(f, ", left out under policy {policy}: {}", left.reason)?,
                None => write!(f, ", left out: {}", left.reason)?,
            }
        }
        Ok(())
    }
}
