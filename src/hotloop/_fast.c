/* The functions that run most often in the user's process, without the interpreter.

   Rows    appends one 24-byte row to a mapped piece of the raw file   (in Python: record/writer.py, _row_function)
   Sites   finds the id of the call site a frame stands at, and of its stack   (in Python: probe/places.py, Places)
   gather  copies rows that lie anywhere into one batch               (in Python: feed/collating.py, _gathered)

   Optional: where this does not compile or load, the Python of the same names does the same. Whatever is not the
   ordinary case (a number out of range, a full piece, code not seen before) is handed to Python. The interpreter
   lock makes each call one step for signal handlers and other threads; without that lock this is not built.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifndef Py_T_PYSSIZET /* their names before 3.12 */
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_T_LONGLONG T_LONGLONG
#define Py_READONLY READONLY
#endif

#ifdef Py_GIL_DISABLED
#error "needs the interpreter lock"
#endif

/* Frames as the interpreter has them: looking at a frame object makes one. NO_FRAMES leaves this out. */
#if !defined(NO_FRAMES) && defined(__has_include) && PY_VERSION_HEX < 0x030E0000
#if __has_include("internal/pycore_frame.h")
#define Py_BUILD_CORE
#include "internal/pycore_frame.h"
#if PY_VERSION_HEX < 0x030D0000
#undef _PyGC_FINALIZED /* a macro outside, another inside */
#include "internal/pycore_ceval.h"
#include "internal/pycore_interp.h"
#endif
#undef Py_BUILD_CORE
#define HAVE_FRAMES
#endif
#endif

/* A row as it lies on disk: record/rows.py has the same as a struct format. */
typedef struct {
    uint64_t start;
    uint32_t dur, value;
    uint16_t site, obj, extra;
    uint8_t flags, kind;
} Row;

_Static_assert(sizeof(Row) == 24, "a row takes 24 bytes");
_Static_assert(sizeof(void *) == 8, "ids of objects are 64 bits");

/* ---- Rows --------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *roll;      /* maps the next piece, and gives it to use() */
    PyObject *saturated; /* saturated(window, offset, start, dur, value, site, obj, extra, flags, kind) */
    PyObject *window;    /* the mapping, NULL where there is none */
    Py_buffer view;
    Py_ssize_t chunk, offset;
    int rolling; /* a piece is being mapped: the rows of a signal handler that came in between are dropped */
} Rows;

static void rows_drop(Rows *self)
{
    if (self->window != NULL) {
        PyBuffer_Release(&self->view);
        Py_CLEAR(self->window);
    }
}

static int fits(PyObject *number, uint64_t top, uint64_t *value)
{
    if (!PyLong_CheckExact(number))
        return 0;
    *value = PyLong_AsUnsignedLongLong(number);
    if (*value == (uint64_t)-1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return *value <= top;
}

/* The arguments in their places where some came by name; what is not given is NULL. */
static int named(PyObject *const *args, Py_ssize_t num, PyObject *names, PyObject **placed)
{
    static const char *const order[8] = {"kind", "start", "dur", "value", "site", "obj", "extra", "flags"};
    memset(placed, 0, 8 * sizeof *placed);
    for (Py_ssize_t i = 0; i < num && i < 8; i++)
        placed[i] = args[i];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int at = 0;
        while (at < 8 && PyUnicode_CompareWithASCIIString(name, order[at]) != 0)
            at++;
        if (at == 8 || placed[at] != NULL) {
            PyErr_Format(PyExc_TypeError, "row() got an unexpected or repeated argument %R", name);
            return 0;
        }
        placed[at] = args[num + i];
    }
    if (placed[0] == NULL || placed[1] == NULL || placed[2] == NULL) {
        PyErr_SetString(PyExc_TypeError, "row() needs kind, start and dur");
        return 0;
    }
    return 1;
}

/* A place for the next row; NULL where rows are dropped, or with an error. */
static char *rows_place(Rows *self)
{
    if (self->window == NULL || self->offset >= self->chunk) {
        if (self->rolling)
            return NULL;
        self->rolling = 1; /* before the call: signals that are due are handled where a function of Python begins */
        PyObject *done = PyObject_CallNoArgs(self->roll);
        self->rolling = 0;
        Py_XDECREF(done);
        if (done == NULL || self->window == NULL || self->offset >= self->chunk)
            return NULL;
    }
    char *place = (char *)self->view.buf + self->offset;
    self->offset += (Py_ssize_t)sizeof(Row);
    return place;
}

static int rows_ready(Rows *self)
{
    return self->window != NULL && self->offset < self->chunk;
}

#define LEAST(one, other) ((one) < (other) ? (one) : (other))

/* One row from C; numbers out of range saturate. 0 with an error. */
static int rows_put(Rows *self, uint8_t kind, uint64_t start, uint64_t dur, uint64_t value, uint64_t site, uint64_t obj,
                    uint64_t extra, uint64_t flags)
{
    char *place = rows_place(self);
    if (place == NULL)
        return !PyErr_Occurred();
    if (dur > UINT32_MAX) {
        dur /= 1000;
        flags |= 0x80; /* LONG */
    }
    Row row = {start, (uint32_t)LEAST(dur, UINT32_MAX), (uint32_t)LEAST(value, UINT32_MAX), (uint16_t)LEAST(site, UINT16_MAX),
               (uint16_t)LEAST(obj, UINT16_MAX), (uint16_t)LEAST(extra, UINT16_MAX), (uint8_t)flags, kind};
    memcpy(place, &row, sizeof row);
    return 1;
}

static PyObject *rows_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    static const uint64_t tops[8] = {UINT8_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT16_MAX, UINT16_MAX, UINT16_MAX, UINT8_MAX};
    Rows *self = (Rows *)object;
    PyObject *by_name[8];
    Py_ssize_t num = PyVectorcall_NARGS(nargsf);
    if (names != NULL && PyTuple_GET_SIZE(names) != 0) {
        if (!named(args, num, names, by_name))
            return NULL;
        args = by_name;
        num = 8;
    }
    if (num < 3 || num > 8) {
        PyErr_Format(PyExc_TypeError, "row() takes 3 to 8 arguments, %zd given", num);
        return NULL;
    }
    char *place = rows_place(self);
    if (place == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    uint64_t at[8] = {0};
    int simple = 1;
    for (Py_ssize_t i = 0; i < num && simple; i++)
        simple = args[i] == NULL || fits(args[i], tops[i], &at[i]);
    if (simple) {
        Row row = {at[1], (uint32_t)at[2], (uint32_t)at[3], (uint16_t)at[4], (uint16_t)at[5], (uint16_t)at[6], (uint8_t)at[7], (uint8_t)at[0]};
        memcpy(place, &row, sizeof row);
        Py_RETURN_NONE;
    }
    PyObject *given[10], *zero = PyLong_FromLong(0), *offset = PyLong_FromSsize_t(place - (char *)self->view.buf), *done = NULL;
    if (zero != NULL && offset != NULL) {
        given[0] = self->window;
        given[1] = offset;
        for (Py_ssize_t i = 1; i < 8; i++)
            given[i + 1] = i < num && args[i] != NULL ? args[i] : zero;
        given[9] = args[0];
        done = PyObject_Vectorcall(self->saturated, given, 10, NULL);
    }
    Py_XDECREF(zero);
    Py_XDECREF(offset);
    return done;
}

static PyObject *rows_use(PyObject *object, PyObject *window)
{
    Rows *self = (Rows *)object;
    Py_ssize_t used = self->offset < self->chunk ? self->offset : self->chunk;
    rows_drop(self);
    self->offset = self->chunk;
    self->rolling = 0; /* also in a child that was forked in between */
    if (window != Py_None) {
        if (PyObject_GetBuffer(window, &self->view, PyBUF_WRITABLE) < 0)
            return NULL;
        if (self->view.len < self->chunk || self->chunk % (Py_ssize_t)sizeof(Row) != 0) {
            PyBuffer_Release(&self->view);
            PyErr_SetString(PyExc_ValueError, "the window is not a whole piece");
            return NULL;
        }
        self->window = Py_NewRef(window);
        self->offset = 0;
    }
    return PyLong_FromSsize_t(used);
}

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *roll, *saturated;
    Py_ssize_t chunk;
    if (!PyArg_ParseTuple(args, "OOn", &roll, &saturated, &chunk))
        return NULL;
    Rows *self = (Rows *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = rows_call;
    self->roll = Py_NewRef(roll);
    self->saturated = Py_NewRef(saturated);
    self->chunk = self->offset = chunk;
    return (PyObject *)self;
}

static int rows_traverse(PyObject *object, visitproc visit, void *arg)
{
    Rows *self = (Rows *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->roll);
    Py_VISIT(self->saturated);
    Py_VISIT(self->window);
    return 0;
}

static int rows_clear(PyObject *object)
{
    Rows *self = (Rows *)object;
    rows_drop(self);
    Py_CLEAR(self->roll);
    Py_CLEAR(self->saturated);
    return 0;
}

static void rows_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    rows_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef rows_methods[] = {
    {"use", rows_use, METH_O, "use(window) -> int: write into this mapping from now on; how much of the last was used."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef rows_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(Rows, call), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "Rows(roll, saturated, chunk): row(kind, start, dur, value=0, site=0, obj=0, extra=0, flags=0)."},
    {Py_tp_new, rows_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_clear, rows_clear},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, rows_methods},
    {Py_tp_members, rows_members},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "hotloop._fast.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = rows_slots,
};

/* ---- Sites -------------------------------------------------------------------------------------------------- */

#define NUM_LATEST 512
#define NUM_STACKS 256

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    /* What was found latest, by address: one cache line each, where the dictionaries are ten. Code is compared and
       never touched; by_code keeps it alive until forget() is called. */
    struct {
        void *code;
        int lasti, site;
    } latest[NUM_LATEST];
    void *latest_library[NUM_LATEST], *latest_user[NUM_LATEST];
    struct {
        uint64_t hash; /* of the codes on the stack, and of where in those of the user: 64 bits tell 20,000 apart */
        long id;
    } stacks[NUM_STACKS];
    PyObject *by_code;  /* id of a code object -> its sites by instruction; the dictionary of Places, shared */
    PyObject *library;  /* stands for "no user code" there */
    PyObject *new_code; /* new_code(code) -> its sites, or library */
    PyObject *new_site; /* new_site(sites, frame) -> id */
    PyObject *new_stack; /* new_stack(frame) -> id */
} Sites;

static void sites_drop_latest(Sites *self)
{
    memset(self->latest_library, 0, sizeof self->latest_library);
    memset(self->latest_user, 0, sizeof self->latest_user);
    memset(self->stacks, 0, sizeof self->stacks);
    memset(self->latest, 0, sizeof self->latest);
}

static PyObject *sites_forget(PyObject *object, PyObject *unused)
{
    sites_drop_latest((Sites *)object);
    PyDict_Clear(((Sites *)object)->by_code);
    Py_RETURN_NONE;
}

/* The id of the innermost user frame at or above a frame (None: none), 0 where there is none, -1 with an error. */
static long sites_find(Sites *self, PyObject *innermost)
{
    PyFrameObject *frame = innermost == Py_None ? NULL : (PyFrameObject *)Py_NewRef(innermost);
    long found = 0;
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        int lasti = PyFrame_GetLasti(frame);
        size_t slot = ((uintptr_t)code >> 5) % NUM_LATEST, place = (slot + (size_t)lasti / 2) % NUM_LATEST;
        Py_DECREF(code); /* the frame has it */
        if (self->latest_library[slot] != code) {
            if (self->latest[place].code == code && self->latest[place].lasti == lasti) {
                found = self->latest[place].site;
                break;
            }
            PyObject *key = PyLong_FromVoidPtr(code);
            PyObject *sites = key == NULL ? NULL : PyDict_GetItemWithError(self->by_code, key);
            Py_XDECREF(key);
            Py_XINCREF(sites);
            if (sites == NULL && !PyErr_Occurred())
                sites = PyObject_CallOneArg(self->new_code, (PyObject *)code);
            if (sites == NULL) {
                found = -1;
                break;
            }
            if (sites != self->library) {
                PyObject *at = PyLong_FromLong(lasti);
                PyObject *site = at == NULL ? NULL : PyDict_GetItemWithError(sites, at);
                Py_XDECREF(at);
                Py_XINCREF(site);
                if (site == NULL && !PyErr_Occurred())
                    site = PyObject_CallFunctionObjArgs(self->new_site, sites, (PyObject *)frame, NULL);
                Py_DECREF(sites);
                found = site == NULL ? -1 : PyLong_AsLong(site);
                Py_XDECREF(site);
                if (found >= 0) {
                    self->latest[place].code = code;
                    self->latest[place].lasti = lasti;
                    self->latest[place].site = (int)found;
                }
                break;
            }
            Py_DECREF(sites);
            self->latest_library[slot] = code;
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return found;
}

#ifdef HAVE_FRAMES
/* As sites_find, of the running frame or the one that called it, where all on the way was seen; else -1, no error. */
static long sites_latest(Sites *self, int above)
{
#if PY_VERSION_HEX >= 0x030D0000
    _PyInterpreterFrame *frame = PyThreadState_Get()->current_frame;
#else
    _PyInterpreterFrame *frame = PyThreadState_Get()->cframe->current_frame;
#endif
    for (; frame != NULL; frame = frame->previous) {
        if (_PyFrame_IsIncomplete(frame) || above-- > 0)
            continue;
#if PY_VERSION_HEX >= 0x030D0000
        PyCodeObject *code = _PyFrame_GetCode(frame);
#else
        PyCodeObject *code = frame->f_code;
#endif
        size_t slot = ((uintptr_t)code >> 5) % NUM_LATEST;
        if (self->latest_library[slot] == code)
            continue;
        int lasti = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
        size_t place = (slot + (size_t)lasti / 2) % NUM_LATEST;
        return self->latest[place].code == code && self->latest[place].lasti == lasti ? self->latest[place].site : -1;
    }
    return 0;
}
#endif

static PyObject *sites_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    if (PyVectorcall_NARGS(nargsf) != 1 || (names != NULL && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "site(frame): one argument");
        return NULL;
    }
    if (args[0] != Py_None && !PyFrame_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "site(frame): a frame or None");
        return NULL;
    }
    long found = sites_find((Sites *)object, args[0]);
    return found < 0 ? NULL : PyLong_FromLong(found);
}

/* Whether code is the user's; -1: not seen yet, or an error. */
static int is_user(Sites *self, void *code)
{
    size_t slot = ((uintptr_t)code >> 5) % NUM_LATEST;
    if (self->latest_library[slot] == code)
        return 0;
    if (self->latest_user[slot] == code)
        return 1;
    PyObject *key = PyLong_FromVoidPtr(code);
    PyObject *sites = key == NULL ? NULL : PyDict_GetItemWithError(self->by_code, key);
    Py_XDECREF(key);
    if (sites == NULL)
        return -1;
    int user = sites != self->library;
    (user ? self->latest_user : self->latest_library)[slot] = code;
    return user;
}

/* Never 0; 0 where code on the stack was not seen yet, or with an error. Code that was seen is kept alive. */
static uint64_t stack_hash(Sites *self, PyObject *innermost)
{
    PyFrameObject *frame = (PyFrameObject *)Py_NewRef(innermost);
    uint64_t hash = 0;
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        int user = is_user(self, code);
        Py_DECREF(code); /* the frame has it */
        if (user < 0) {
            Py_DECREF(frame);
            return 0;
        }
        hash = (hash ^ (uintptr_t)code) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
        if (user) { /* where inside a library function does not matter */
            hash = (hash ^ (uint64_t)PyFrame_GetLasti(frame)) * 0xC2B2AE3D27D4EB4Fu;
            hash ^= hash >> 32;
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    return hash | 1;
}

/* The id of the stack at a frame; 0 where Python has to be asked. */
static long sites_stack(Sites *self, PyObject *innermost)
{
    uint64_t hash = stack_hash(self, innermost);
    size_t slot = (hash >> 8) % NUM_STACKS;
    return hash != 0 && self->stacks[slot].hash == hash ? self->stacks[slot].id : 0;
}

static PyObject *sites_stack_of(PyObject *object, PyObject *frame)
{
    Sites *self = (Sites *)object;
    long found = PyFrame_Check(frame) ? sites_stack(self, frame) : 0;
    if (found > 0)
        return PyLong_FromLong(found);
    PyErr_Clear();
    PyObject *number = PyObject_CallOneArg(self->new_stack, frame);
    if (number != NULL && PyFrame_Check(frame) && (found = PyLong_AsLong(number)) > 0) {
        uint64_t hash = stack_hash(self, frame);
        if (hash != 0) {
            size_t slot = (hash >> 8) % NUM_STACKS;
            self->stacks[slot].hash = hash;
            self->stacks[slot].id = found;
        }
    }
    if (PyErr_Occurred())
        Py_CLEAR(number);
    return number;
}

static PyObject *sites_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *by_code, *library, *new_code, *new_site, *new_stack;
    if (!PyArg_ParseTuple(args, "O!O!OOO", &PyDict_Type, &by_code, &PyDict_Type, &library, &new_code, &new_site, &new_stack))
        return NULL;
    Sites *self = (Sites *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = sites_call;
    self->by_code = Py_NewRef(by_code);
    self->library = Py_NewRef(library);
    self->new_code = Py_NewRef(new_code);
    self->new_site = Py_NewRef(new_site);
    self->new_stack = Py_NewRef(new_stack);
    return (PyObject *)self;
}

static int sites_traverse(PyObject *object, visitproc visit, void *arg)
{
    Sites *self = (Sites *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->by_code);
    Py_VISIT(self->library);
    Py_VISIT(self->new_code);
    Py_VISIT(self->new_site);
    Py_VISIT(self->new_stack);
    return 0;
}

static int sites_clear(PyObject *object)
{
    Sites *self = (Sites *)object;
    sites_drop_latest(self);
    Py_CLEAR(self->by_code);
    Py_CLEAR(self->library);
    Py_CLEAR(self->new_code);
    Py_CLEAR(self->new_site);
    Py_CLEAR(self->new_stack);
    return 0;
}

static void sites_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    sites_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef sites_methods[] = {
    {"forget", sites_forget, METH_NOARGS, "forget(): begin again."},
    {"stack", sites_stack_of, METH_O, "stack(frame) -> int: the id of the whole stack."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef sites_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(Sites, call), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot sites_slots[] = {
    {Py_tp_doc, "Sites(by_code, library, new_code, new_site, new_stack): site(frame) -> int."},
    {Py_tp_new, sites_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, sites_traverse},
    {Py_tp_clear, sites_clear},
    {Py_tp_dealloc, sites_dealloc},
    {Py_tp_methods, sites_methods},
    {Py_tp_members, sites_members},
    {0, NULL},
};

static PyType_Spec sites_spec = {
    .name = "hotloop._fast.Sites",
    .basicsize = sizeof(Sites),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = sites_slots,
};

/* ---- gather ------------------------------------------------------------------------------------------------- */

enum { LINE = 64, PAGE = 4096, HEAD = 16 * LINE, STRIPE = 4 * PAGE, STREAMED = 4 << 20 };

#ifdef __SSE2__
/* Four pages at a time keep more reads under way than one, and what is written past the processor's caches is
   not read first: a batch that is larger than a cache comes from memory anyway when it is used. */
static void stream(char *into, const char *from, size_t size)
{
    size_t lead = -(uintptr_t)into % LINE;
    memcpy(into, from, lead);
    into += lead, from += lead, size -= lead;
    for (; size >= STRIPE; into += STRIPE, from += STRIPE, size -= STRIPE)
        for (size_t at = 0; at < PAGE; at += LINE)
            for (size_t page = at; page < STRIPE; page += PAGE) {
                const __m128i *line = (const __m128i *)(from + page);
                __m128i *there = (__m128i *)(into + page);
                __builtin_prefetch((const char *)line + 8 * LINE);
                __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
                __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
                _mm_stream_si128(there, a), _mm_stream_si128(there + 1, b);
                _mm_stream_si128(there + 2, c), _mm_stream_si128(there + 3, d);
            }
    memcpy(into, from, size);
}
#endif

/* Rows that begin at starts in source, or at these addresses where source is NULL. */
static void copy_rows(char *into, size_t size, const char *source, const int64_t *starts, size_t num, int past)
{
#ifdef __SSE2__
    if (past && size >= STRIPE + LINE && num * size >= STREAMED) {
        for (size_t i = 0; i < num; i++)
            stream(into + i * size, source + starts[i], size);
        _mm_sfence();
        return;
    }
#endif
    for (size_t i = 0; i < num; i++) {
        if (i + 1 < num)
            for (size_t at = 0; at < size && at < HEAD; at += LINE)
                __builtin_prefetch(source + starts[i + 1] + at);
        memcpy(into + i * size, source + starts[i], size);
    }
}

static PyObject *gather(PyObject *module, PyObject *args)
{
    Py_ssize_t into, size, num;
    Py_buffer source, starts;
    int past = 1;
    if (!PyArg_ParseTuple(args, "nnz*y*|p", &into, &size, &source, &starts, &past))
        return NULL;
    const int64_t *first = starts.buf;
    num = starts.len / (Py_ssize_t)sizeof *first;
    int outside = size < 0;
    for (Py_ssize_t i = 0; i < num && source.buf != NULL && !outside; i++)
        outside = first[i] < 0 || first[i] > source.len - size;
    if (!outside) {
        Py_BEGIN_ALLOW_THREADS
        copy_rows((char *)into, size, source.buf, first, num, past);
        Py_END_ALLOW_THREADS
    }
    if (source.buf != NULL)
        PyBuffer_Release(&source);
    PyBuffer_Release(&starts);
    if (outside) {
        PyErr_SetString(PyExc_IndexError, "a row lies outside of what rows are taken from");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- palettes ----------------------------------------------------------------------------------------------- */

/* Up to 256 values, by their bits. The bits times a factor say in which slot a value's number stands; no two
   known values share one. What a slot holds is looked at again, so one that holds nothing may hold anything. */
enum { COLOURS = 256, SLOTS_BITS = 14, SLOTS = 1 << SLOTS_BITS, AT_ONCE = 4096, TRIES = 1 << 16 };

#define PALETTE(SIZE, BITS)                                                                                            \
    static inline size_t slot_##SIZE(BITS bits, BITS factor) { return (BITS)(bits * factor) >> (8 * SIZE - SLOTS_BITS); } \
                                                                                                                       \
    static int place_##SIZE(BITS factor, const BITS *values, int64_t number, uint8_t *slots)                           \
    {                                                                                                                  \
        size_t slot = slot_##SIZE(values[number], factor);                                                             \
        if (slots[slot] < number && slot_##SIZE(values[slots[slot]], factor) == slot)                                  \
            return 0;                                                                                                  \
        slots[slot] = (uint8_t)number;                                                                                 \
        return 1;                                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    static int learn_##SIZE(BITS bits, BITS *values, uint8_t *slots, int64_t *count, uint64_t *factor)                 \
    {                                                                                                                  \
        if (*count == COLOURS)                                                                                         \
            return 0;                                                                                                  \
        values[(*count)++] = bits;                                                                                     \
        if (place_##SIZE((BITS)*factor, values, *count - 1, slots))                                                    \
            return 1;                                                                                                  \
        for (int tries = 0; tries < TRIES; tries++) {                                                                  \
            int64_t placed = 0;                                                                                        \
            *factor = *factor * UINT64_C(0x5851F42D4C957F2D) + 2; /* stays odd */                                      \
            while (placed < *count && place_##SIZE((BITS)*factor, values, placed, slots))                              \
                placed++;                                                                                              \
            if (placed == *count)                                                                                      \
                return 1;                                                                                              \
        }                                                                                                              \
        return 0;                                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    static int encode_##SIZE(uint8_t *restrict into, const BITS *restrict from, size_t num, BITS *restrict values,     \
                             uint8_t *restrict slots, int64_t *count, uint64_t *factor)                                \
    {                                                                                                                  \
        if (num && !*count && !learn_##SIZE(*from, values, slots, count, factor))                                      \
            return 0;                                                                                                  \
        while (num) {                                                                                                  \
            size_t some = num < AT_ONCE ? num : AT_ONCE;                                                               \
            BITS by = (BITS)*factor, other = 0;                                                                        \
            for (size_t i = 0; i < some; i++) {                                                                        \
                into[i] = slots[slot_##SIZE(from[i], by)];                                                             \
                other |= values[into[i]] ^ from[i];                                                                    \
            }                                                                                                          \
            for (size_t i = 0; other && i < some; i++) {                                                               \
                into[i] = slots[slot_##SIZE(from[i], (BITS)*factor)];                                                  \
                if (values[into[i]] == from[i])                                                                        \
                    continue;                                                                                          \
                if (!learn_##SIZE(from[i], values, slots, count, factor))                                              \
                    return 0;                                                                                          \
                into[i] = (uint8_t)(*count - 1);                                                                       \
            }                                                                                                          \
            into += some, from += some, num -= some;                                                                   \
        }                                                                                                              \
        return 1;                                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    static void decode_##SIZE(BITS *restrict into, const uint8_t *restrict from, size_t num, const BITS *restrict values) \
    {                                                                                                                  \
        for (size_t i = 0; i < num; i++)                                                                               \
            into[i] = values[from[i]];                                                                                 \
    }
PALETTE(4, uint32_t)
PALETTE(8, uint64_t)

/* outer times channels times inner values, each channel with a palette of its own. */
static PyObject *encode(PyObject *module, PyObject *args)
{
    Py_ssize_t into, from, size, outer, channels, inner;
    Py_buffer values, slots, counts, factors;
    if (!PyArg_ParseTuple(args, "nnnnnnw*w*w*w*", &into, &from, &size, &outer, &channels, &inner, &values, &slots, &counts, &factors))
        return NULL;
    int held = 1, fits = (size == 4 || size == 8) && values.len == channels * COLOURS * size && slots.len == channels * SLOTS &&
                         counts.len == channels * 8 && factors.len == channels * 8;
    if (fits) {
        int64_t *count = counts.buf;
        uint64_t *factor = factors.buf;
        uint8_t *there = (uint8_t *)into, *found = slots.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < outer * channels && held; i++, there += inner) {
            Py_ssize_t c = i % channels;
            if (size == 4)
                held = encode_4(there, (const uint32_t *)from + i * inner, inner, (uint32_t *)values.buf + c * COLOURS,
                                found + c * SLOTS, count + c, factor + c);
            else
                held = encode_8(there, (const uint64_t *)from + i * inner, inner, (uint64_t *)values.buf + c * COLOURS,
                                found + c * SLOTS, count + c, factor + c);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&slots);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&factors);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "no palette of so many channels of values of this size");
        return NULL;
    }
    return PyBool_FromLong(held);
}

static PyObject *decode(PyObject *module, PyObject *args)
{
    Py_ssize_t into, from, size, outer, channels, inner;
    Py_buffer values;
    if (!PyArg_ParseTuple(args, "nnnnnny*", &into, &from, &size, &outer, &channels, &inner, &values))
        return NULL;
    int fits = (size == 4 || size == 8) && values.len == channels * COLOURS * size;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < outer * channels; i++) {
            const uint8_t *numbers = (const uint8_t *)from + i * inner;
            Py_ssize_t table = i % channels * COLOURS;
            if (size == 4)
                decode_4((uint32_t *)into + i * inner, numbers, inner, (const uint32_t *)values.buf + table);
            else
                decode_8((uint64_t *)into + i * inner, numbers, inner, (const uint64_t *)values.buf + table);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "no table of so many channels of values of this size");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyTypeObject *rows_type, *sites_type;

#include "_hooks.c"

static PyMethodDef module_methods[] = {
#ifdef HAVE_HOOKS
    {"making", (PyCFunction)(void (*)(void))making, METH_FASTCALL,
     "making(dataset, indices): the samples, and when the slowest began, how long it took and its index."},
    {"attach", (PyCFunction)(void (*)(void))attach, METH_FASTCALL,
     "attach(function, hook): calls of a function of Python by C, as of a type's __call__, are the hook's."},
    {"hold", hold, METH_NOARGS, "hold(): no samples until go_on(); before a fork."},
    {"go_on", go_on, METH_NOARGS, "go_on(): samples as before hold()."},
#endif
    {"gather", gather, METH_VARARGS,
     "gather(address, num_bytes, source, starts, past=True): rows one behind the other at an address, each the num_bytes that\n"
     "begin at one of starts (int64) in source (None: starts are addresses). The interpreter is free meanwhile."},
    {"encode", encode, METH_VARARGS,
     "encode(into, from, size, outer, channels, inner, values, slots, counts, factors): whether the values of size bytes at an\n"
     "address are at most 256 a channel; their numbers are at another then, and the palette has learned them."},
    {"decode", decode, METH_VARARGS,
     "decode(into, from, size, outer, channels, inner, values): the values that the numbers at an address stand for."},
    {NULL, NULL, 0, NULL},
};

/* ---- the module --------------------------------------------------------------------------------------------- */

static int add(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **kept)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL)
        return -1;
    if (kept != NULL)
        Py_XSETREF(*kept, (PyTypeObject *)Py_NewRef(type));
    int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int module_exec(PyObject *module)
{
    if (add(module, "Rows", &rows_spec, &rows_type) < 0 || add(module, "Sites", &sites_spec, &sites_type) < 0)
        return -1;
#ifdef HAVE_HOOKS
    if (add(module, "Counts", &counts_spec, &counts_type) < 0 || add(module, "Entry", &entry_spec, &entry_type) < 0 ||
        add(module, "Feed", &feed_spec, &feed_type) < 0 || add(module, "Ticks", &ticks_spec, &ticks_type) < 0 ||
        add(module, "Hook", &hook_spec, &hook_type) < 0)
        return -1;
#endif
    return PyModule_AddIntConstant(module, "FORM", 7); /* fast.py leaves out what was compiled from another source */
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "hotloop._fast", "Rows, call sites and hooks, compiled.", 0, module_methods, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    return PyModuleDef_Init(&module);
}
