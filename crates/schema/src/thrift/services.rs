//! Services: each function becomes two structs, its arguments and its result.

use super::link::{IdlLinker, Place, Shape};
use crate::SchemaError;
use crate::schema::{Field, Message, Method, Role, Service};
use pilota_thrift_parser as idl;
use std::collections::HashMap;
use tollfree_layout::table::{Kind, Label};

/// Services that extend one another: beyond it they go round in a circle.
const LONGEST_CHAIN: usize = 64;

impl IdlLinker<'_> {
    pub(super) fn all_services(&mut self) -> Result<(), SchemaError> {
        let files = self.files;
        let mut own: HashMap<(usize, &str), Vec<Method>> = HashMap::new();
        let mut order = Vec::new();
        for (file_idx, file) in files.iter().enumerate() {
            for item in &file.items {
                let idl::Item::Service(service) = item else { continue };
                let mut methods: Vec<Method> = Vec::with_capacity(service.functions.len());
                for function in &service.functions {
                    methods.push(self.function(file_idx, service, function)?);
                }
                own.insert((file_idx, service.name.as_str()), methods);
                order.push((file_idx, service.name.as_str()));
            }
        }
        for key in order {
            let mut methods: Vec<Method> = Vec::new();
            for part in self.with_bases(key)? {
                methods.extend(own[&part].iter().cloned());
            }
            self.no_function_twice(key, &methods)?;
            let name = format!("{}.{}", files[key.0].stem, key.1);
            self.schema.services.push(Service { name, methods });
        }
        Ok(())
    }

    /// The service and all that it extends, the outermost base first.
    fn with_bases<'k>(&self, key: (usize, &'k str)) -> Result<Vec<(usize, &'k str)>, SchemaError>
    where
        Self: 'k,
    {
        let mut chain = vec![key];
        loop {
            let (file_idx, name) = chain[chain.len() - 1];
            let Some((service_key, service)) = self.services.get_key_value(&(file_idx, name)) else { break };
            let Some(base) = &service.extends else { break };
            let place = Place { file_idx, keyword: "service", name: service_key.1, members: &[] };
            let found = self.split(file_idx, &base.segments);
            let found = found.and_then(|found| self.services.get_key_value(&found));
            let Some((found, _)) = found else {
                return Err(self.error(place, "the service that it extends is not defined"));
            };
            if chain.len() > LONGEST_CHAIN {
                return Err(self.error(place, "the service extends itself"));
            }
            chain.push(*found);
        }
        chain.reverse();
        Ok(chain)
    }

    fn no_function_twice(&self, key: (usize, &str), methods: &[Method]) -> Result<(), SchemaError> {
        for (idx, method) in methods.iter().enumerate() {
            if methods[..idx].iter().any(|other| other.name == method.name) {
                let members = [method.name.as_str()];
                let place = Place { file_idx: key.0, keyword: "service", name: key.1, members: &members };
                let problem = format!("function {} is defined twice, here or in a base service", method.name);
                return Err(self.error(place, problem));
            }
        }
        Ok(())
    }

    fn function(
        &mut self,
        file_idx: usize,
        service: &idl::Service,
        function: &idl::Function,
    ) -> Result<Method, SchemaError> {
        let name = function.name.as_str();
        let members = [name];
        let place = Place { file_idx, keyword: "service", name: service.name.as_str(), members: &members };
        let full = format!("{}.{}.{name}", self.files[file_idx].stem, service.name.as_str());
        // Requiredness does not count here, as in Apache's compiler; the parser states one that nobody wrote.
        let args = self.fields(place, &function.arguments, false)?;
        let mut result = self.fields(place, &function.throws, false)?;
        for field in &result {
            let target = field.target_idx.filter(|_| field.label == Label::Explicit);
            let role = target.filter(|_| field.kind == Kind::Message);
            if role.is_none_or(|idx| self.schema.messages[idx].role != Role::Exception) {
                return Err(self.error(place, format!("{} is thrown and no exception", field.name)));
            }
        }
        let void = matches!(function.result_type.0, idl::Ty::Void);
        if !void {
            let shape: Shape = self.shape(place, &function.result_type, 0)?;
            let mut success = Field::new(0, "success", Kind::Bool, Label::Explicit);
            self.describe(&mut success, &shape);
            result.insert(0, success);
        }
        if function.oneway && !result.is_empty() {
            return Err(self.error(place, "a oneway function neither returns nor throws"));
        }
        let input_idx = self.message(format!("{full}_args"), args);
        let output_idx = self.message(format!("{full}_result"), result);
        Ok(Method {
            name: name.to_owned(),
            input_idx,
            output_idx,
            oneway: function.oneway,
            ..Method::default()
        })
    }

    fn message(&mut self, name: String, fields: Vec<Field>) -> usize {
        self.schema.messages.push(Message { name, fields, ..Message::default() });
        self.schema.messages.len() - 1
    }

    /// The struct of a reply of type EXCEPTION, the same for all services.
    pub(super) fn error_reply(&mut self) {
        let mut text = Field::new(1, "message", Kind::String, Label::Explicit);
        text.utf8 = true;
        let kind = Field::new(2, "type", Kind::Int32, Label::Explicit);
        let idx = self.message("TApplicationException".to_owned(), vec![text, kind]);
        self.schema.messages[idx].role = Role::Exception;
    }
}
