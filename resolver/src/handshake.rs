//! The handshake on a new connection to Redis.

use std::fmt;

use vocabulary::KeyPrefix;

use crate::connection_error::ConnectionError;
use crate::resp::{Reply, push_command};
use crate::sentinel::Role;

/// A step of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// `HELLO 3`, with which the client also logs in.
    Hello,
    /// `SELECT`
    Select,
    /// `ROLE`
    Role,
    /// `CLIENT TRACKING ON`
    Tracking,
    /// `SUBSCRIBE`: its answer is a push, so this stands for the `PING` behind it.
    Subscribe,
}

/// Whom a client logs in as.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the ACL's user; `default` where there is none.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Redis' way of reporting changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// It remembers what this client caches, and reports only those changes.
    #[default]
    OptIn,
    /// It remembers nothing and reports every link that is changed or created.
    Broadcast,
}

/// Role that a server must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredRole {
    Any,
    Master,
    /// A replica whose copy is being kept up to date.
    Replica,
}

/// Commands of a handshake, with their steps.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    commands: Vec<u8>,
    steps: Vec<Step>,
    role: RequiredRole,
}

impl Handshake {
    /// Begins with `HELLO`.
    pub(crate) fn new(credentials: Option<&Credentials>) -> Self {
        // RESP3, for the pushes that keep a cache coherent; every Redis since 6 knows it.
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(Credentials { user, password }) = credentials {
            hello.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
        }
        hello.extend([&b"SETNAME"[..], b"shortlink-edge"]);
        let mut handshake = Self {
            commands: Vec::new(),
            steps: Vec::new(),
            role: RequiredRole::Any,
        };
        handshake.push(Step::Hello, &hello);
        handshake
    }

    /// Selects a database.
    pub(crate) fn select(mut self, database: u16) -> Self {
        if database != 0 {
            self.push(Step::Select, &[b"SELECT", database.to_string().as_bytes()]);
        }
        self
    }

    /// Asks for the role.
    pub(crate) fn require(mut self, role: RequiredRole) -> Self {
        self.role = role;
        if role != RequiredRole::Any {
            self.push(Step::Role, &[b"ROLE"]);
        }
        self
    }

    /// Requests reports of changes.
    pub(crate) fn track(mut self, tracking: Tracking, prefix: &KeyPrefix) -> Self {
        let mut command: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON"];
        let links = [prefix.as_bytes(), b"l:"].concat();
        let campaigns = [prefix.as_bytes(), b"c:"].concat();
        match tracking {
            Tracking::OptIn => command.push(b"OPTIN"),
            Tracking::Broadcast => {
                command.extend([&b"BCAST"[..], b"PREFIX", &links, b"PREFIX", &campaigns]);
            }
        }
        self.push(Step::Tracking, &command);
        self
    }

    /// Asks a sentinel to notify of a new master.
    pub(crate) fn subscribe(mut self) -> Self {
        push_command(&[b"SUBSCRIBE", b"+switch-master"], &mut self.commands);
        self.push(Step::Subscribe, &[b"PING"]);
        self
    }

    /// Reports whether the server must have a certain role.
    pub(crate) fn requires_role(&self) -> bool {
        self.role != RequiredRole::Any
    }

    fn push(&mut self, step: Step, command: &[&[u8]]) {
        push_command(command, &mut self.commands);
        self.steps.push(step);
    }

    pub(crate) fn commands(&self) -> &[u8] {
        &self.commands
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Reads the reply to a step; returns whether changes will be reported from now on.
    ///
    /// # Errors
    /// Fails if the server can't be used.
    pub(crate) fn judge(&self, step: Step, reply: &Reply<'_>) -> Result<bool, ConnectionError> {
        match (step, reply) {
            // Without it nothing can be kept, but everything can be asked.
            (Step::Tracking, Reply::Error(_)) => Ok(false),
            (Step::Tracking, _) => Ok(true),
            (_, Reply::Error(text)) => Err(ConnectionError::Refused(
                String::from_utf8_lossy(text).into_owned(),
            )),
            (Step::Role, reply) => self.judge_role(reply).map(|()| false),
            (Step::Hello | Step::Select | Step::Subscribe, _) => Ok(false),
        }
    }

    /// Reads a reply to `ROLE`.
    ///
    /// # Errors
    /// Fails if the server does not have the required role.
    pub(crate) fn judge_role(&self, reply: &Reply<'_>) -> Result<(), ConnectionError> {
        let role = match reply {
            Reply::Aggregate(bytes) => Role::parse(bytes),
            _ => None,
        };
        match (self.role, role) {
            (RequiredRole::Any, _)
            | (RequiredRole::Master, Some(Role::Master))
            | (RequiredRole::Replica, Some(Role::Replica { is_connected: true })) => Ok(()),
            (_, None) => Err(ConnectionError::Protocol("its role is not understood")),
            (_, Some(Role::Master)) => Err(ConnectionError::Role("it is a master".to_owned())),
            (_, Some(Role::Sentinel)) => Err(ConnectionError::Role("it is a sentinel".to_owned())),
            (RequiredRole::Replica, Some(Role::Replica { .. })) => Err(ConnectionError::Role(
                "it is a replica that has lost its master".to_owned(),
            )),
            (RequiredRole::Master, Some(Role::Replica { .. })) => {
                Err(ConnectionError::Role("it is a replica".to_owned()))
            }
        }
    }
}
