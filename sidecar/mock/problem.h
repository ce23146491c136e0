/* problem.h: errors in TaxCloud's form (problem JSON).
 *
 * Owns: the form. Called by: taxcloud_shape.c, server.c, control.c. Thread: any; pure.
 */
#ifndef SPW_MOCK_PROBLEM_H
#define SPW_MOCK_PROBLEM_H

/* An answer: the status and a malloc'ed JSON body (NULL = no memory). */
struct spw_mock_reply {
    unsigned status;
    char *body;
    const char *content_type; /* NULL = JSON */
};

/* location NULL = no "errors" entry. */
struct spw_mock_reply spw_mock_problem(unsigned status, const char *location, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
