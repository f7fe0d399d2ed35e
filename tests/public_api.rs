//! The public interface as the source says it, compared with `tests/public_api.txt`, so that no change of it goes unseen.
//!
//! It reads the source and asks no compiler. So it does not see what macros write (methods of `Kind` and `Key`, cases of
//! the conformance suites), macros, whether a type is `Send`, and what types of other crates are; names are as written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quote::ToTokens;
use syn::visit_mut::VisitMut;
use syn::{Attribute, Block, Fields, Item, UseTree};

/// The names of a module, from the crate's root on.
type Place = Vec<String>;

/// Every module of the crate, without tests and without what a user does not meet; and what is implemented of each type.
#[derive(Default)]
struct Source(BTreeMap<Place, Vec<Item>>, BTreeMap<(Place, String), Vec<String>>);

impl Source {
    /// Reads a module, and those in it, each a file in `folder`.
    fn read(&mut self, place: Place, mut items: Vec<Item>, folder: &Path) {
        let tests = ["#[cfg(test)]", "#[cfg(all(test", "#[cfg(all(doctest"];
        items.iter_mut().for_each(|item| Met.visit_item_mut(item));
        items.retain(|item| !tests.iter().any(|test| text(item).starts_with(test)));
        for item in &items {
            let Item::Mod(module) = item else { continue };
            if module.content.is_none() {
                let name = module.ident.to_string();
                let inner = folder.join(&name);
                let room = inner.join("mod.rs");
                let items = match room.exists() {
                    true => parsed(&room),
                    false => parsed(&inner.with_extension("rs")),
                };
                self.read(inside(&place, &name), items, &inner);
            }
        }
        self.0.insert(place, items);
    }

    /// What `path` means to the module at `place`: where it is defined, and as what. None: it is another crate's.
    fn defined(&self, place: &[String], path: &[String]) -> Option<(Place, &Item)> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.defined(&[], rest),
            "self" => self.defined(place, rest),
            "super" => self.defined(place.split_last()?.1, rest),
            _ if !rest.is_empty() => self.defined(&inside(place, first), rest),
            _ => self.0.get(place)?.iter().find_map(|item| match item {
                Item::Use(import) => {
                    let paths = leaves(&import.tree, &[]).into_iter();
                    let mut meant = paths.filter(|path| path.len() > 1 && path.last() == Some(first));
                    self.defined(place, &meant.next()?)
                }
                item => (named(item)? == *first).then(|| (place.to_vec(), item)),
            }),
        }
    }

    /// What is implemented of each type, by where it is defined.
    fn implemented(&self) -> BTreeMap<(Place, String), Vec<String>> {
        let mut implemented: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (place, items) in &self.0 {
            for item in items {
                let Item::Impl(of) = item else { continue };
                let whose = text(&of.self_ty).split('<').take(1).collect();
                let found = self.defined(place, std::slice::from_ref(&whose));
                let Some((home, _)) = found else { continue };
                let of_it = implemented.entry((home, whose)).or_default();
                let mut of = of.clone();
                let members: Vec<_> = of.items.drain(..).map(text).collect();
                match of.trait_ {
                    Some(_) => of_it.push(text(of)),
                    None => of_it.extend(members.into_iter().filter(|text| is_public(text))),
                }
            }
        }
        implemented
    }

    /// Tells what is public in the module at `place`, which a user calls `public`.
    fn tell(&self, place: &[String], public: &str, told: &mut BTreeSet<String>) {
        for item in self.0[place].iter().filter(|item| is_public(&text(item))) {
            if let Item::Use(import) = item {
                let condition: String = import.attrs.iter().map(|of| text(of) + " ").collect();
                for path in leaves(&import.tree, &[]) {
                    let name = &path[path.len() - 1];
                    let known = format!("{public}::{name}: {condition}");
                    match self.defined(place, &path) {
                        Some((home, item)) => {
                            self.describe(&home, item, &known, told);
                            if let Item::Mod(_) = item {
                                self.tell(&inside(&home, name), &format!("{public}::{name}"), told);
                            }
                        }
                        None => told.extend([known + "a macro"]),
                    }
                }
                continue;
            }
            let name = named(item).expect("it has a name");
            self.describe(place, item, &format!("{public}::{name}: "), told);
            if let Item::Mod(_) = item {
                self.tell(&inside(place, &name), &format!("{public}::{name}"), told);
            }
        }
    }

    /// Tells of one item and of its public members, a line each.
    fn describe(&self, home: &[String], item: &Item, path: &str, told: &mut BTreeSet<String>) {
        let mut bare = item.clone();
        let mut members: Vec<String> = match &mut bare {
            Item::Trait(of) => of.items.drain(..).map(text).collect(),
            Item::Enum(of) => std::mem::take(&mut of.variants).iter().map(text).collect(),
            Item::Struct(of) => {
                let fields = std::mem::replace(&mut of.fields, Fields::Unit);
                fields.iter().map(text).filter(|text| is_public(text)).collect()
            }
            _ => Vec::new(),
        };
        members.push(text(bare));
        let name = named(item).unwrap_or_default();
        members.extend(self.1.get(&(home.to_vec(), name)).into_iter().flatten().cloned());
        told.extend(members.into_iter().map(|member| format!("{path}{member}")));
    }
}

/// Leaves of attributes those that a user meets, and nothing of bodies.
struct Met;

impl VisitMut for Met {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        let met = ["cfg", "default", "derive", "non_exhaustive"];
        attributes.retain(|attribute| met.iter().any(|name| attribute.path().is_ident(name)));
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        block.stmts.clear();
    }
}

fn parsed(file: &Path) -> Vec<Item> {
    let source = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    syn::parse_file(&source).expect("it compiles").items
}

fn inside(place: &[String], name: &str) -> Place {
    [place, &[name.to_owned()]].concat()
}

fn named(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Mod(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Whether it says so, its attributes apart.
fn is_public(text: &str) -> bool {
    let said = text.split("] ").find(|part| !part.starts_with("#["));
    said.is_some_and(|said| said.starts_with("pub "))
}

/// The paths that a `use` names.
fn leaves(tree: &UseTree, before: &[String]) -> Vec<Place> {
    match tree {
        UseTree::Path(path) => leaves(&path.tree, &inside(before, &path.ident.to_string())),
        UseTree::Name(name) => vec![inside(before, &name.ident.to_string())],
        UseTree::Group(group) => group.items.iter().flat_map(|tree| leaves(tree, before)).collect(),
        _ => Vec::new(),
    }
}

/// Its tokens, with spaces about as a person sets them.
fn text(tokens: impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    let joined = " ::|:: | <|< | >| (|( | )| ,| :| ;| =|= |& |# ".split('|');
    joined.fold(text, |text, joined| text.replace(joined, joined.trim()))
}

#[test]
fn the_public_interface_is_as_it_was() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut source = Source::default();
    source.read(Vec::new(), parsed(&root.join("src/lib.rs")), &root.join("src"));
    source.1 = source.implemented();
    let mut told = BTreeSet::new();
    source.tell(&[], "delayline", &mut told);
    let file = root.join("tests/public_api.txt");
    if std::env::var_os("DELAYLINE_RENEW_API").is_some() {
        let lines: String = told.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, lines).expect("a file that can be written");
    }
    let before = std::fs::read_to_string(&file).expect("the file");
    let before: BTreeSet<_> = before.lines().map(str::to_owned).collect();
    let gone: Vec<_> = before.difference(&told).collect();
    let new: Vec<_> = told.difference(&before).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "the public interface has changed.\ngone: {gone:#?}\nnew: {new:#?}\nIf it is meant to, say so in CHANGELOG.md \
         and renew the file: DELAYLINE_RENEW_API=1 cargo test --test public_api"
    );
}
