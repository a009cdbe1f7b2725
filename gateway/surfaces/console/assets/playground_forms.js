// The forms for tools and for the JSON schema of the answer. The text fields with their JSON are what is sent; the forms
// read and write them, so JSON that a form cannot show is never lost.
"use strict";

const TOOL_NAME = /^[A-Za-z0-9_-]{1,64}$/;
const SCHEMA_TYPES = ["string", "number", "integer", "boolean", "array", "object"];
const EXAMPLE_TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Return the weather in a city.",
    parameters: {
      type: "object",
      properties: {
        city: {type: "string", description: "The city, for example Oslo"},
        unit: {type: "string", description: "The unit of the temperature", enum: ["celsius", "fahrenheit"]},
      },
      required: ["city"],
    },
  },
};
const EXAMPLE_SCHEMA = {
  type: "object",
  properties: {
    title: {type: "string", description: "A short title"},
    tags: {type: "array", items: {type: "string"}, description: "At most five keywords"},
  },
  required: ["title", "tags"],
  additionalProperties: false,
};

function makeField(tag, label, attributes = {}) {
  const element = document.createElement(tag);
  Object.assign(element, attributes);
  element.id ||= `field-${crypto.randomUUID()}`;
  const title = document.createElement("label");
  title.textContent = label;
  title.htmlFor = element.id;
  return [title, element];
}

// Say what is wrong with a schema; "" for a good one.
function findSchemaProblem(schema) {
  if (schema === null || typeof schema !== "object" || Array.isArray(schema)) return "The schema must be a JSON object.";
  if (schema.type !== undefined && schema.type !== "object") return 'The type of the schema must be "object".';
  const properties = schema.properties ?? {};
  if (properties === null || typeof properties !== "object" || Array.isArray(properties)) return '"properties" must be an object.';
  for (const [name, about] of Object.entries(properties)) {
    if (about === null || typeof about !== "object") return `The property ${name} must be an object.`;
  }
  if (!Array.isArray(schema.required ?? [])) return '"required" must be a list.';
  for (const name of schema.required ?? []) {
    if (!(name in properties)) return `"required" names ${name}, which is not among the properties.`;
  }
  return "";
}

function findToolProblem(tool, others) {
  if (!TOOL_NAME.test(tool.function.name)) return "The name has 1 to 64 letters, digits, _ and -.";
  if (others.includes(tool.function.name)) return `There is already a tool with the name ${tool.function.name}.`;
  return tool.function.parameters === undefined ? "" : findSchemaProblem(tool.function.parameters);
}

// Rows for the properties of a schema, and its JSON. A schema that has more than rows can show is edited as JSON.
class SchemaForm {
  constructor(place) {
    this.place = place;
    this.kept = {};
    this.rows = document.createElement("div");
    this.rows.className = "properties";
    const add = document.createElement("button");
    Object.assign(add, {type: "button", className: "small", textContent: "Add a parameter"});
    add.addEventListener("click", () => this.addRow().querySelector("input").focus());
    const [label, text] = makeField("textarea", "JSON schema", {rows: 8, spellcheck: false, className: "mono"});
    this.text = text;
    this.details = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "As JSON";
    this.details.append(summary, label, text);
    place.replaceChildren(this.rows, add, this.details);
    this.rows.addEventListener("input", () => this.writeText());
    this.text.addEventListener("input", () => this.readText());
  }

  show(schema) {
    this.text.value = JSON.stringify(schema, null, 2);
    this.readText();
    this.details.open = !this.simple;
  }

  // Return the schema, or throw an error that says what is wrong.
  read() {
    let schema;
    try {
      schema = JSON.parse(this.text.value || "{}");
    } catch (error) {
      this.details.open = true;
      throw new Error(`The schema is not JSON: ${error.message}`);
    }
    const names = [...this.rows.querySelectorAll(".property-name")].map((field) => field.value.trim());
    if (this.simple && names.some((name) => !name)) throw new Error("A parameter has no name.");
    if (this.simple && new Set(names).size < names.length) throw new Error("Two parameters have the same name.");
    const problem = findSchemaProblem(schema);
    if (problem) throw new Error(problem);
    return schema;
  }

  readText() {
    let schema;
    try {
      schema = JSON.parse(this.text.value || "{}");
    } catch {
      return;
    }
    const {properties = {}, required = [], ...kept} = schema ?? {};
    this.simple = !findSchemaProblem(schema);
    this.rows.hidden = !this.simple;
    if (!this.simple) return;
    this.kept = {type: "object", ...kept};
    this.rows.replaceChildren();
    for (const [name, about] of Object.entries(properties)) this.addRow(name, about, required.includes(name));
  }

  writeText() {
    const properties = {};
    const required = [];
    for (const row of this.rows.children) {
      const [name, type, description, needed] = row.querySelectorAll("input, select");
      if (!name.value.trim()) continue;
      const {type: _, description: __, ...rest} = row.about;
      const about = {...(type.value && {type: type.value}), ...(description.value && {description: description.value}), ...rest};
      properties[name.value.trim()] = about;
      if (type.value === "array" && !about.items) about.items = {type: "string"};
      if (needed.checked) required.push(name.value.trim());
    }
    this.text.value = JSON.stringify({...this.kept, properties, ...(required.length && {required})}, null, 2);
  }

  addRow(name = "", about = {type: "string"}, needed = false) {
    const row = document.createElement("fieldset");
    row.className = "property";
    row.about = about;
    const legend = document.createElement("legend");
    legend.className = "hidden";
    legend.textContent = "Parameter";
    const cell = (...parts) => {
      const box = document.createElement("div");
      box.append(...parts);
      return box;
    };
    const [nameLabel, nameField] = makeField("input", "Name", {value: name, className: "property-name", autocomplete: "off"});
    const [typeLabel, typeField] = makeField("select", "Type");
    for (const type of ["", ...SCHEMA_TYPES]) typeField.add(new Option(type || "other", type));
    typeField.value = SCHEMA_TYPES.includes(about.type) ? about.type : "";
    const [aboutLabel, aboutField] = makeField("input", "Description", {value: about.description ?? ""});
    const check = document.createElement("label");
    check.className = "check";
    const box = Object.assign(document.createElement("input"), {type: "checkbox", checked: needed});
    check.append(box, "Required");
    const remove = Object.assign(document.createElement("button"), {type: "button", className: "small", textContent: "Remove"});
    remove.setAttribute("aria-label", `Remove the parameter ${name}`);
    remove.addEventListener("click", () => { row.remove(); this.writeText(); });
    row.append(legend, cell(nameLabel, nameField), cell(typeLabel, typeField), cell(aboutLabel, aboutField), check, remove);
    this.rows.append(row);
    return row;
  }
}

// The list of tools with its dialog. `field` has the JSON of all tools; `changed` is called after each change.
class ToolForm {
  constructor(root, field, changed) {
    this.field = field;
    this.changed = changed;
    this.list = root.querySelector("#tool-list");
    this.dialog = document.getElementById("tool-dialog");
    this.parts = (name) => this.dialog.querySelector(`#tool-${name}`);
    this.schema = new SchemaForm(this.parts("schema"));
    root.querySelector("#tool-add").addEventListener("click", () => this.edit(-1));
    this.parts("example").addEventListener("click", () => this.fill(EXAMPLE_TOOL));
    this.parts("form").addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
    field.addEventListener("input", () => this.show());
    this.show();
  }

  // Return the tools; none while the JSON is incomplete.
  tools() {
    try {
      const tools = JSON.parse(this.field.value || "[]");
      return Array.isArray(tools) ? tools : [];
    } catch {
      return [];
    }
  }

  show() {
    this.list.replaceChildren(...this.tools().map((tool, index) => {
      const name = tool?.function?.name || tool?.name || tool?.type || "tool";
      const item = document.createElement("li");
      const open = Object.assign(document.createElement("button"), {type: "button", className: "small", textContent: name});
      open.disabled = !tool?.function;
      open.title = tool?.function?.description || "";
      open.addEventListener("click", () => this.edit(index));
      const remove = Object.assign(document.createElement("button"), {type: "button", className: "small", textContent: "×"});
      remove.setAttribute("aria-label", `Remove the tool ${name}`);
      remove.addEventListener("click", () => this.write(this.tools().filter((_, other) => other !== index)));
      item.append(open, remove);
      return item;
    }));
  }

  edit(index) {
    this.index = index;
    this.fill(this.tools()[index] ?? {type: "function", function: {name: "", parameters: {type: "object", properties: {}}}});
    this.report("");
    openDialog(this.dialog);
  }

  fill(tool) {
    this.tool = tool;
    this.parts("name").value = tool.function.name ?? "";
    this.parts("description").value = tool.function.description ?? "";
    this.schema.show(tool.function.parameters ?? {type: "object", properties: {}});
  }

  save() {
    const tools = this.tools();
    const others = tools.filter((_, index) => index !== this.index).map((tool) => tool?.function?.name);
    try {
      const parameters = this.schema.read();
      const description = this.parts("description").value.trim();
      const {name: _, description: __, parameters: ___, ...rest} = this.tool.function;
      const made = {name: this.parts("name").value.trim(), ...(description && {description}), parameters, ...rest};
      const tool = {...this.tool, function: made};
      const problem = findToolProblem(tool, others);
      if (problem) throw new Error(problem);
      if (this.index < 0) tools.push(tool);
      else tools[this.index] = tool;
    } catch (error) {
      this.report(error.message);
      return;
    }
    this.write(tools);
    this.dialog.close();
  }

  write(tools) {
    this.field.value = tools.length ? JSON.stringify(tools, null, 2) : "";
    this.show();
    this.changed();
  }

  report(text) {
    this.parts("problem").textContent = text;
    this.parts("problem").hidden = !text;
  }
}

// The format of the answer: text, JSON, or JSON of a schema, whose text field is `#schema`.
class AnswerForm {
  constructor(root, changed) {
    this.kind = root.querySelector("#answer-kind");
    this.field = root.querySelector("#schema");
    this.box = root.querySelector("#answer-schema");
    this.changed = changed;
    this.dialog = document.getElementById("schema-dialog");
    this.schema = new SchemaForm(this.dialog.querySelector("#schema-fields"));
    this.problem = this.dialog.querySelector("#schema-problem");
    root.querySelector("#schema-edit").addEventListener("click", () => this.edit());
    this.dialog.querySelector("#schema-example").addEventListener("click", () => this.schema.show(EXAMPLE_SCHEMA));
    this.dialog.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
    this.kind.addEventListener("change", () => this.arrange());
    this.arrange();
  }

  arrange() {
    this.box.hidden = this.kind.value !== "json_schema";
  }

  edit() {
    let schema = {};
    try {
      schema = JSON.parse(this.field.value || "{}");
    } catch { /* the field says what is wrong when it is sent */ }
    this.schema.show({type: "object", properties: {}, ...schema});
    this.problem.hidden = true;
    openDialog(this.dialog);
  }

  save() {
    try {
      this.field.value = JSON.stringify(this.schema.read(), null, 2);
    } catch (error) {
      this.problem.textContent = error.message;
      this.problem.hidden = false;
      return;
    }
    this.changed();
    this.dialog.close();
  }
}
