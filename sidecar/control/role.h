/* role.h: what a peer may do. Internal to control/.
 *
 * Owns: enum spw_role. Called by: methods, socket.c, tls.c. Thread: any; pure.
 */
#ifndef SPW_CONTROL_ROLE_H
#define SPW_CONTROL_ROLE_H

#include "sidecar/conf/conf.h"

/* What a door serves, each including the ones before. Records hold customers' addresses, so that a port any container
 * of the pod may reach does not give them out. */
enum spw_role { SPW_ROLE_NOTHING, SPW_ROLE_READ, SPW_ROLE_RECORDS, SPW_ROLE_OPERATE, SPW_ROLE_ADMIN };

/* Who is known by a certificate or a user id may see records when it may read at all. */
static inline enum spw_role spw_role_of(enum spw_conf_role role)
{
    return role == SPW_CONF_ADMIN     ? SPW_ROLE_ADMIN
           : role == SPW_CONF_OPERATE ? SPW_ROLE_OPERATE
                                      : SPW_ROLE_RECORDS;
}

#endif
