/* Answers the questions of spec/runner.md about what the C library has functions for: tables and flat messages. All else it calls not
   implemented. Questions are one JSON object a line, of which this reads texts without escapes, which is what these topics have. */
#include "check.h"

/* What is written: a text that grows. */
static char *answer;
static size_t answer_len, answer_room;

static void put(const char *text, size_t len)
{
  if (answer_len + len + 1 > answer_room) {
    answer_room = 2 * (answer_len + len + 1);
    answer = realloc(answer, answer_room);
    CHECK(answer != NULL);
  }
  memcpy(answer + answer_len, text, len);
  answer_len += len;
  answer[answer_len] = 0;
}

static void put_text(const char *text)
{
  put(text, strlen(text));
}

static void put_quoted(tollfree_bytes text)
{
  put_text("\"");
  for (size_t at = 0; at < text.len; at++) {
    char c = (char)text.data[at];
    if (c == '"' || c == '\\')
      put_text("\\");
    if ((unsigned char)c >= ' ')
      put(&c, 1);
  }
  put_text("\"");
}

static void put_hex(tollfree_bytes bytes)
{
  char pair[3];
  put_text("\"");
  for (size_t at = 0; at < bytes.len; at++) {
    snprintf(pair, sizeof pair, "%02x", bytes.data[at]);
    put(pair, 2);
  }
  put_text("\"");
}

static void put_wide(uint64_t number)
{
  char text[19];
  snprintf(text, sizeof text, "\"%016llx\"", (unsigned long long)number);
  put_text(text);
}

/* Behind the colon of a member of a question; NULL: it has none. */
static const char *member(const char *question, const char *name)
{
  char wanted[64];
  const char *found;
  snprintf(wanted, sizeof wanted, "\"%s\":", name);
  found = strstr(question, wanted);
  return found ? found + strlen(wanted) : NULL;
}

static tollfree_bytes text_of(const char *question, const char *name)
{
  const char *from = member(question, name), *end;
  CHECK(from != NULL && *from == '"' && (end = strchr(from + 1, '"')) != NULL);
  return (tollfree_bytes){ (const uint8_t *)from + 1, (size_t)(end - from - 1) };
}

/* Bytes of a member's hexadecimal digits, to be freed. */
static tollfree_bytes bytes_of(const char *question, const char *name)
{
  tollfree_bytes text = text_of(question, name);
  uint8_t *bytes = malloc(text.len / 2 + 1);
  CHECK(bytes != NULL && text.len % 2 == 0);
  for (size_t at = 0; at < text.len / 2; at++) {
    unsigned byte;
    CHECK(sscanf((const char *)text.data + 2 * at, "%2x", &byte) == 1);
    bytes[at] = (uint8_t)byte;
  }
  return (tollfree_bytes){ bytes, text.len / 2 };
}

static int table_of(const char *question, tollfree_table *table)
{
  tollfree_bytes blob = bytes_of(question, "table");
  int number = tollfree_table_load(blob, table);
  free((void *)blob.data);
  return number;
}

static void put_table(tollfree_table table)
{
  tollfree_type type = { .size = sizeof type };
  uint64_t fingerprint;
  uint32_t count, fields = 0;
  OK(tollfree_table_fingerprint(table, &fingerprint));
  OK(tollfree_table_type_count(table, &count));
  put_text(",\"fingerprint\":");
  put_wide(fingerprint);
  put_text(",\"types\":[");
  for (uint32_t at = 0; at < count; at++) {
    OK(tollfree_table_type_at(table, at, &type));
    put_text(at ? "," : "");
    put_quoted(type.name);
  }
  put_text("],\"fields\":[");
  for (uint32_t at = 0; at < count; at++) {
    OK(tollfree_table_type_at(table, at, &type));
    for (uint32_t nth = 0; nth < type.field_count; nth++) {
      tollfree_field field = { .size = sizeof field };
      char number[16];
      OK(tollfree_table_field_at(table, at, nth, &field));
      snprintf(number, sizeof number, "%s\"%u ", fields++ ? "," : "", field.number);
      put_text(number);
      put((const char *)field.name.data, field.name.len);
      put_text("\"");
    }
    RETURNS(TOLLFREE_ERROR_OBJECT_FIELD, tollfree_table_field_at(table, at, type.field_count, &(tollfree_field){ .size = sizeof(tollfree_field) }));
  }
  RETURNS(TOLLFREE_ERROR_TABLE_TYPE, tollfree_table_type_at(table, count, &type));
  put_text("]");
}

/* What a question of a type comes to: an error's number where it is refused. */
static int of_type(const char *question, tollfree_bytes topic, tollfree_table table)
{
  tollfree_type type = { .size = sizeof type };
  tollfree_object object;
  tollfree_bytes flat;
  uint32_t index;
  int number = tollfree_table_type(table, text_of(question, "type"), &index);
  if (number != 0)
    return number;
  if (topic.data[0] == 'f') {
    OK(tollfree_table_type_at(table, index, &type));
    put_text(",\"fingerprint\":");
    put_wide(type.fingerprint);
    return 0;
  }
  flat = bytes_of(question, topic.data[0] == 'd' ? "message" : "object");
  number = topic.data[0] == 'd' ? tollfree_object_decode(table, index, flat, &object)
                                : tollfree_object_verify(table, index, tollfree_copied(flat.data, flat.len), &object);
  free((void *)flat.data);
  if (number != 0)
    return number;
  if (topic.data[0] == 'd') {
    OK(tollfree_object_bytes(object, &flat));
    put_text(",\"object\":");
    put_hex(flat);
  } else {
    tollfree_payload encoded;
    number = tollfree_object_encode(object, &encoded);
    if (number == 0) {
      put_text(",\"message\":");
      put_hex(encoded.bytes);
      OK(tollfree_buffer_release(encoded.buffer));
    }
  }
  OK(tollfree_object_release(object));
  return number;
}

static int is(tollfree_bytes topic, const char *name)
{
  return topic.len == strlen(name) && memcmp(topic.data, name, topic.len) == 0;
}

static void reply(const char *question)
{
  tollfree_bytes topic = text_of(question, "topic");
  const char *id = member(question, "id");
  char head[48];
  tollfree_table table;
  int number;
  CHECK(id != NULL);
  answer_len = 0;
  snprintf(head, sizeof head, "{\"id\":%lu", strtoul(id, NULL, 10));
  put_text(head);
  if (!is(topic, "table") && !is(topic, "fingerprint") && !is(topic, "decode") && !is(topic, "verify")) {
    put_text(",\"not_implemented\":true}\n");
    return;
  }
  number = table_of(question, &table);
  if (number == 0) {
    if (is(topic, "table"))
      put_table(table);
    else
      number = of_type(question, topic, table);
    OK(tollfree_table_release(table));
  }
  if (number != 0) {
    const char *why = tollfree_error_text();
    put_text(",\"refused\":");
    put_quoted((tollfree_bytes){ (const uint8_t *)why, strlen(why) });
  }
  put_text("}\n");
}

int main(void)
{
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, stdin) > 0) {
    reply(line);
    CHECK(fwrite(answer, 1, answer_len, stdout) == answer_len && fflush(stdout) == 0);
  }
  free(line);
  free(answer);
  return 0;
}
