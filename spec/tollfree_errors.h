/* Numbers of errors: written from spec/constants.toml, and not to be changed here. */
#ifndef TOLLFREE_ERRORS_H
#define TOLLFREE_ERRORS_H

/* Numbers of errors; spec/errors.md says what to do. */
#define TOLLFREE_ERROR_ADDRESS_SCHEME 101u /* The text is no address of a session. */
#define TOLLFREE_ERROR_ADDRESS_NOT_ABSOLUTE 102u /* The address has no absolute path. */
#define TOLLFREE_ERROR_ADDRESS_TOO_LONG 103u /* The path or name is longer than a socket's can be. */
#define TOLLFREE_ERROR_ADDRESS_EMPTY 104u /* The address names no socket, or has a NUL in its name. */
#define TOLLFREE_ERROR_NEEDS_LINUX 105u /* The program was built for another system than Linux. */
#define TOLLFREE_ERROR_BIND_IN_USE 111u /* A server that lives has the address. */
#define TOLLFREE_ERROR_BIND_NOT_A_SOCKET 112u /* Something that is no socket lies at the path. */
#define TOLLFREE_ERROR_BIND_DIRECTORY 113u /* The socket's directory can't be used. */
#define TOLLFREE_ERROR_BIND_PASSED_SOCKET 114u /* The socket that was passed is none that can be served. */
#define TOLLFREE_ERROR_BIND_NO_MEMORY 115u /* The process can't have, or may not share, memory. */
#define TOLLFREE_ERROR_BIND_FAILED 116u /* The kernel refuses for another reason. */
#define TOLLFREE_ERROR_CONNECT_NO_SOCKET 201u /* There is no socket at the path. */
#define TOLLFREE_ERROR_CONNECT_NOBODY_LISTENS 202u /* A socket is there, and its server has died. */
#define TOLLFREE_ERROR_CONNECT_NOT_A_SOCKET 203u /* Something that is no socket lies at the path. */
#define TOLLFREE_ERROR_CONNECT_NO_PERMISSION 204u /* The socket may not be opened by this user. */
#define TOLLFREE_ERROR_CONNECT_FAILED 205u /* The kernel refuses for another reason. */
#define TOLLFREE_ERROR_HANDSHAKE_SOCKET 211u /* The socket failed in the handshake. */
#define TOLLFREE_ERROR_HANDSHAKE_TIMEOUT 212u /* The peer has not answered in time. */
#define TOLLFREE_ERROR_HANDSHAKE_HUNG_UP 213u /* The peer hung up in the handshake. */
#define TOLLFREE_ERROR_HANDSHAKE_PEER_DIED 214u /* The peer's process has died, and one forked from it keeps its socket. */
#define TOLLFREE_ERROR_HANDSHAKE_CROWDED 215u /* Many connect at once, and this one has said nothing yet. */
#define TOLLFREE_ERROR_HANDSHAKE_QUOTA 216u /* The process or user has all that it may have of this server. */
#define TOLLFREE_ERROR_HANDSHAKE_DESCRIPTORS 217u /* The server has no descriptors left. */
#define TOLLFREE_ERROR_HANDSHAKE_CLOSING 218u /* The server is shutting down. */
#define TOLLFREE_ERROR_HANDSHAKE_HTTP2 219u /* The peer speaks HTTP/2. */
#define TOLLFREE_ERROR_HANDSHAKE_OTHER_PROTOCOL 220u /* The peer speaks another protocol. */
#define TOLLFREE_ERROR_HANDSHAKE_MALFORMED 221u /* The peer's message makes no sense. */
#define TOLLFREE_ERROR_HANDSHAKE_VERSION 222u /* The sides have no version in common. */
#define TOLLFREE_ERROR_HANDSHAKE_FEATURE 223u /* The peer requires a feature that this side lacks. */
#define TOLLFREE_ERROR_HANDSHAKE_USER 224u /* The peer runs as a user that is not allowed. */
#define TOLLFREE_ERROR_HANDSHAKE_MEMORY 225u /* One side's memory can't be used. */
#define TOLLFREE_ERROR_HANDSHAKE_SIZE 226u /* The peer announces a size that the protocol does not allow. */
#define TOLLFREE_ERROR_HANDSHAKE_TOKEN 227u /* The client's token is not good. */
#define TOLLFREE_ERROR_HANDSHAKE_TLS 228u /* TLS says that the peer is not what it should be. */
#define TOLLFREE_ERROR_HANDSHAKE_CERTIFICATES 229u /* A certificate's file of this process can't be used. */
#define TOLLFREE_ERROR_HANDSHAKE_NO_CERTIFICATE 230u /* The peer's certificate names nobody who may attach. */
#define TOLLFREE_ERROR_HANDSHAKE_NO_ANSWER 231u /* The server has not answered the client's token. */
#define TOLLFREE_ERROR_HANDSHAKE_NO_GATEWAY 232u /* A server listens where a gateway was wanted. */
#define TOLLFREE_ERROR_HANDSHAKE_GATEWAY 233u /* A gateway listens where a server was wanted. */
#define TOLLFREE_ERROR_HANDSHAKE_REFUSED 234u /* The server refused, in words of its own. */
#define TOLLFREE_ERROR_SESSION_CLOSED_BY_PEER 301u /* The peer has ended the session. */
#define TOLLFREE_ERROR_SESSION_HUNG_UP 302u /* The peer has died, or let go of the session. */
#define TOLLFREE_ERROR_SESSION_CLOSED_HERE 303u /* This side has ended the session. */
#define TOLLFREE_ERROR_VIOLATION_FRAME_LEN 311u /* A frame's parts do not add up to its record. */
#define TOLLFREE_ERROR_VIOLATION_FRAME_KIND 312u /* Events or flags that do not go together. */
#define TOLLFREE_ERROR_VIOLATION_STREAM_ID 313u /* A stream opened out of turn, or never. */
#define TOLLFREE_ERROR_VIOLATION_STREAM_COUNT 314u /* More calls at once than were allowed. */
#define TOLLFREE_ERROR_VIOLATION_METHOD_INDEX 315u /* A method's index that was not named, or out of turn. */
#define TOLLFREE_ERROR_VIOLATION_METHOD_PATH 316u /* A method's path that is none. */
#define TOLLFREE_ERROR_VIOLATION_ORDER 317u /* An event that its stream's state does not allow. */
#define TOLLFREE_ERROR_VIOLATION_CHUNK 318u /* A chunk that does not fit its message. */
#define TOLLFREE_ERROR_VIOLATION_OVERDRAWN 319u /* More bytes than there was credit for. */
#define TOLLFREE_ERROR_VIOLATION_CREDIT_OVERFLOW 320u /* Credit that overflows. */
#define TOLLFREE_ERROR_VIOLATION_METADATA_LEN 321u /* Metadata longer than was announced. */
#define TOLLFREE_ERROR_VIOLATION_METADATA 322u /* Metadata that can't be parsed. */
#define TOLLFREE_ERROR_VIOLATION_AREA_RANGE 323u /* A chunk outside of every payload area. */
#define TOLLFREE_ERROR_VIOLATION_CONTROL 324u /* A control code that is not known, or out of turn. */
#define TOLLFREE_ERROR_VIOLATION_RING 325u /* A forged sequence, length or cursor in the ring. */
#define TOLLFREE_ERROR_VIOLATION_SOCKET 326u /* Doorbells or descriptors that no peer sends. */
#define TOLLFREE_ERROR_CALL_ENDED 401u /* The call has ended, or this end has said all that it may. */
#define TOLLFREE_ERROR_CALL_DRAINING 402u /* The server takes no new calls in this session. */
#define TOLLFREE_ERROR_CALL_STREAM_COUNT 403u /* As many calls are under way as the server takes at once. */
#define TOLLFREE_ERROR_CALL_METADATA_LEN 404u /* The metadata are longer than the peer takes. */
#define TOLLFREE_ERROR_CALL_METHOD_PATH 405u /* The method's path is empty or too long. */
#define TOLLFREE_ERROR_CALL_MESSAGE_LEN 406u /* The message is longer than the protocol carries. */
#define TOLLFREE_ERROR_CALL_MISENCODED 407u /* The message can't be encoded. */
#define TOLLFREE_ERROR_CALL_OUT_OF_ORDER 408u /* This part of a call may not be said now. */
#define TOLLFREE_ERROR_CALL_HEADERS_SAID 409u /* The answer's headers were said before. */
#define TOLLFREE_ERROR_CALL_NO_SESSION 410u /* No call can begin in the session: it is over, draining or not there yet. */
#define TOLLFREE_ERROR_CALL_NOT_A_CLIENT 411u /* A server's session begins no calls. */
#define TOLLFREE_ERROR_CALL_NOT_A_SERVER 412u /* A client's session answers no calls. */
#define TOLLFREE_ERROR_USE_LOOP 501u /* The loop was freed, or never was. */
#define TOLLFREE_ERROR_USE_THREAD 502u /* The loop belongs to another thread. */
#define TOLLFREE_ERROR_USE_BUSY 503u /* The loop is at work: a release function has called it. */
#define TOLLFREE_ERROR_USE_FORKED 504u /* The loop is that of the process from which this one was forked. */
#define TOLLFREE_ERROR_USE_NULL 505u /* A pointer that has to point somewhere is null. */
#define TOLLFREE_ERROR_USE_LENGTH 506u /* A length is longer than memory can be, or reaches beyond its buffer. */
#define TOLLFREE_ERROR_USE_SIZE 507u /* The first member of a structure is not a size that this library knows. */
#define TOLLFREE_ERROR_USE_BUFFER 508u /* The buffer was released, or never was. */
#define TOLLFREE_ERROR_USE_VALUE 509u /* A value is none of those that the header lists. */
#define TOLLFREE_ERROR_USE_SESSION 510u /* The session or listener is over, or is another loop's. */
#define TOLLFREE_ERROR_METADATA_PAIR 511u /* A name or value of metadata is none that gRPC carries. */
#define TOLLFREE_ERROR_METADATA_BLOCK 512u /* A block of metadata ends in the middle of a pair. */
#define TOLLFREE_ERROR_SYSTEM_REFUSED 513u /* The kernel refuses; the text has its words. */
#define TOLLFREE_ERROR_LIBRARY_FAULT 514u /* The library has failed within itself; the loop is of no more use. */
#define TOLLFREE_ERROR_TABLE_BLOB 521u /* The blob is no table of message types. */
#define TOLLFREE_ERROR_TABLE_HANDLE 522u /* The table or object was released, or never was. */
#define TOLLFREE_ERROR_TABLE_TYPE 523u /* The table has no message type of that name. */
#define TOLLFREE_ERROR_OBJECT_UNSOUND 524u /* The bytes are no flat message of that type, or lack a required field. */
#define TOLLFREE_ERROR_OBJECT_FIELD 525u /* The path leads to no field, or to a field of another type. */
#define TOLLFREE_ERROR_POOL_HANDLE 531u /* The pool was released, or never was. */
#define TOLLFREE_ERROR_POOL_JOIN 532u /* The pool can't be made or joined. */
#define TOLLFREE_ERROR_POOL_FULL 533u /* The pool has no room for the bytes. */

#endif
